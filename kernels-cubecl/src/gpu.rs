//! A device and what it can do.
use crate::buffer::Buffer;
use crate::error::GpuError;
use crate::failure;
use cubecl::client::ComputeClient;
use cubecl::device::{Device, DeviceId};
use cubecl::features::{MmaConfig, Plane, TypeUsage};
use cubecl::ir::{DeviceProperties, ElemType, FloatKind};
use cubecl::prelude::*;
use std::cell::Cell;
use std::fmt;

/// Capabilities of a device that decide between the variants of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Units of a plane, where plane operations may be used and all planes have that size.
    pub plane: Option<u32>,
    /// Bytes of the largest buffer that can be allocated and bound.
    pub max_buffer: u64,
    /// Bytes that the start of a buffer must be a multiple of.
    pub alignment: u64,
    /// Bytes of shared memory of a cube.
    pub shared_memory: usize,
    /// The matrix units, where there are any that the products can use.
    pub matrix: Option<MatrixUnit>,
}

/// A unit that multiplies square fragments of f16 into f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatrixUnit {
    /// Rows, columns and depth of a fragment.
    pub size: u32,
    /// Units of the plane that shares a fragment.
    pub plane: u32,
}

impl MatrixUnit {
    /// Planes that divide a cube of the products among them evenly.
    const PLANES: [u32; 2] = [32, 64];

    fn new(properties: &DeviceProperties, plane: Option<u32>) -> Option<Self> {
        let plane = plane.filter(|plane| Self::PLANES.contains(plane))?;
        let (narrow, wide) = (ElemType::Float(FloatKind::F16).into(), ElemType::Float(FloatKind::F32).into());
        if !properties.type_usage(narrow).is_superset(TypeUsage::Conversion | TypeUsage::Buffer) {
            return None;
        }
        let size = [16, 8].into_iter().find(|&size| {
            let config =
                MmaConfig { a_type: narrow, b_type: narrow, cd_type: wide, m: size, n: size, k: size };
            properties.features.matmul.cmma.contains(&config)
        })?;
        Some(Self { size, plane })
    }
}

/// Largest buffer, also on devices that allow more: `u32` word indices and one gibibyte pages reach further than
/// this, and no single allocation should depend on a hole of several gibibytes.
const MAX_BUFFER: u64 = 1 << 30;

/// A device: its command queue and its capabilities. Cloning shares the device.
#[derive(Clone)]
pub struct Gpu<R: Runtime> {
    /// The runtime's queue.
    pub client: ComputeClient<R>,
    device: DeviceId,
    caps: Capabilities,
}

impl<R: Runtime> fmt::Debug for Gpu<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gpu({}, {:?})", R::name(&self.client), self.caps)
    }
}

thread_local! {
    static LAUNCHES: Cell<u64> = const { Cell::new(0) };
    static READ: Cell<u64> = const { Cell::new(0) };
}

/// Kernels that this thread has launched so far.
pub fn launch_count() -> u64 {
    LAUNCHES.get()
}

/// Bytes that this thread has read back from devices so far.
pub fn read_bytes() -> u64 {
    READ.get()
}

impl<R: Runtime> Gpu<R> {
    /// The queue of `device`, which is started at its first use.
    pub fn open(device: &R::Device) -> Self {
        failure::watch();
        Self::new(R::client(device), device)
    }

    /// The device behind `client`, with the capabilities it reports.
    pub fn new(client: ComputeClient<R>, device: &R::Device) -> Self {
        failure::watch();
        let properties = client.properties();
        let hardware = &properties.hardware;
        let fixed = hardware.plane_size_min == hardware.plane_size_max;
        let plane =
            (fixed && properties.features.plane.contains(Plane::Ops)).then_some(hardware.plane_size_max);
        let caps = Capabilities {
            plane,
            max_buffer: properties.memory.max_page_size.min(MAX_BUFFER),
            alignment: properties.memory.alignment,
            shared_memory: hardware.max_shared_memory_size,
            matrix: MatrixUnit::new(properties, plane),
        };
        Self { client, device: device.to_id(), caps }
    }

    /// The same device with other capabilities, to choose a variant that it would not choose itself.
    pub fn with_capabilities(&self, caps: Capabilities) -> Self {
        Self { caps, ..self.clone() }
    }

    /// Capabilities that decide between the variants of a kernel.
    pub fn caps(&self) -> Capabilities {
        self.caps
    }

    /// [`guard`](crate::guard) for this device.
    ///
    /// # Errors
    /// Those of `work`, and [`GpuError::Device`].
    pub fn guard<T, E: From<GpuError>>(&self, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        failure::guard(self.device, work)
    }

    /// Uninitialised memory for an intermediate result.
    ///
    /// # Panics
    /// If it is larger than the device allows: callers bound their rows so that it never is.
    pub fn empty(&self, words: usize) -> Buffer {
        let bytes = 4 * words as u64;
        assert!(
            bytes <= self.caps.max_buffer,
            "{bytes} bytes in one buffer, {} allowed",
            self.caps.max_buffer
        );
        Buffer::new(self.client.empty(bytes as usize), words)
    }

    /// Copies words to the device.
    ///
    /// # Errors
    /// [`GpuError::TooLarge`].
    pub fn upload(&self, what: &str, words: &[u32]) -> Result<Buffer, GpuError> {
        let bytes = 4 * words.len() as u64;
        if bytes > self.caps.max_buffer {
            return Err(GpuError::TooLarge { what: what.to_owned(), bytes, limit: self.caps.max_buffer });
        }
        Ok(Buffer::new(self.client.create_from_slice(u32::as_bytes(words)), words.len()))
    }

    /// Waits for the results in `buffer` and copies them to the host.
    ///
    /// # Errors
    /// [`GpuError::Device`] when the device failed at anything since the last look.
    pub fn read(&self, buffer: &Buffer) -> Result<Vec<u32>, GpuError> {
        READ.set(READ.get() + 4 * buffer.len as u64);
        let bytes = self.guard(|| {
            let bytes = self.client.read_one(buffer.handle.clone());
            bytes.map_err(|error| GpuError::Device(error.to_string()))
        })?;
        Ok(u32::from_bytes(&bytes)[..buffer.len].to_vec())
    }

    /// [`read`](Self::read) of `f32` words.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_f32(&self, buffer: &Buffer) -> Result<Vec<f32>, GpuError> {
        Ok(self.read(buffer)?.into_iter().map(f32::from_bits).collect())
    }

    /// Waits until the device has done everything.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn wait(&self) -> Result<(), GpuError> {
        self.guard(|| {
            let done = cubecl::future::block_on(self.client.sync());
            done.map_err(|error| GpuError::Device(error.to_string()))
        })
    }

    /// The client to launch a kernel on; counts the launch.
    pub(crate) fn launch(&self) -> &ComputeClient<R> {
        LAUNCHES.set(LAUNCHES.get() + 1);
        &self.client
    }
}
