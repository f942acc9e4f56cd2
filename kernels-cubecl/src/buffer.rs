//! Device memory as 32-bit words.
use cubecl::prelude::{ArrayArg, Runtime};
use cubecl::server::Handle;

/// `len` words of device memory, `f32` or `u32`. Cloning shares the memory.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// The runtime's handle; it may be a window into a larger allocation.
    pub handle: Handle,
    /// Words.
    pub len: usize,
}

impl Buffer {
    /// Words of memory behind `handle`, which must hold as many.
    pub fn new(handle: Handle, len: usize) -> Self {
        debug_assert!(handle.size_in_used() >= 4 * len as u64, "{handle:?} is shorter than {len} words");
        Self { handle, len }
    }

    /// The words `start..start + len`. `4 * start` must be a multiple of the device's alignment.
    pub fn slice(&self, start: usize, len: usize) -> Self {
        assert!(start + len <= self.len, "{start} + {len} of {} words", self.len);
        let rest = (self.handle.size_in_used() - 4 * (start + len) as u64) as i64;
        let handle = self.handle.clone().offset_start(4 * start as u64).offset_end(rest as u64);
        Self { handle, len }
    }

    /// The buffer as a kernel argument.
    pub(crate) fn arg<R: Runtime>(&self) -> ArrayArg<R> {
        // SAFETY: `new` and `slice` keep `len` words within the handle, and every element type here has four bytes.
        unsafe { ArrayArg::from_raw_parts(self.handle.clone(), self.len) }
    }
}
