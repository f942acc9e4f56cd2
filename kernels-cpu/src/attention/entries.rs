//! Reading the keys or values of one head, whatever their type, as eight f32 lanes at a time.

use half::{bf16, f16};

use crate::float::lanes::{F32x8, Simd};
use crate::kv::{Q8_0_BYTES, Q8_0_LEN};

/// Entries of equal width: the keys or values of one head, position by position.
pub(super) trait Entries: Copy {
    /// Octets that share a step and are best read together.
    const BLOCK_OCTETS: usize = 1;
    /// Elements `8 * octet ..` of entry `entry`.
    ///
    /// # Safety
    /// Both must lie inside of what the entries were made from.
    unsafe fn octet<S: Simd>(self, s: S, entry: usize, octet: usize) -> S::F;
    /// Asks for entry `entry` to be brought near, from `octet` on for `octets`: a hint, for any entry.
    fn prefetch(self, _row: usize, _octet: usize, _octets: usize) {}
}

/// Entries in bytes, as a pool holds them.
pub(super) trait StoredEntries<'a>: Entries {
    /// Up to this many query rows read keys and values where they are; for more it is faster to widen a tile once.
    const MOST_DIRECT: usize;
    /// Entries that start `stride` bytes apart.
    fn new(bytes: &'a [u8], stride: usize) -> Self;
    /// Element `element` of entry `entry`.
    fn element(self, entry: usize, element: usize) -> f32;
}

/// f32 entries.
#[derive(Clone, Copy)]
pub(super) struct F32Entries<'a> {
    bytes: &'a [u8],
    stride: usize,
}

/// q8_0 entries.
#[derive(Clone, Copy)]
pub(super) struct Q8Entries<'a> {
    bytes: &'a [u8],
    stride: usize,
}

/// Asks for the cache lines of `len` bytes from `start`, which may lie anywhere.
#[inline(always)]
fn prefetch_bytes(bytes: &[u8], start: usize, len: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..len).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing and never faults; every x86-64 has it.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(start + line).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, start, len);
}

/// The `N` bytes from `start`.
///
/// # Safety
/// They must lie inside of `bytes`.
#[inline(always)]
unsafe fn bytes_at<const N: usize>(bytes: &[u8], start: usize) -> &[u8; N] {
    debug_assert!(start + N <= bytes.len());
    // SAFETY: the caller keeps `start + N` inside, and an array of bytes has no alignment.
    unsafe { &*bytes.as_ptr().add(start).cast() }
}

impl Entries for F32Entries<'_> {
    #[inline(always)]
    unsafe fn octet<S: Simd>(self, s: S, entry: usize, octet: usize) -> S::F {
        // SAFETY: the caller's promise.
        s.load_bytes(unsafe { bytes_at(self.bytes, entry * self.stride + 32 * octet) })
    }
    #[inline(always)]
    fn prefetch(self, entry: usize, octet: usize, octets: usize) {
        prefetch_bytes(self.bytes, entry * self.stride + 32 * octet, 32 * octets);
    }
}

impl<'a> StoredEntries<'a> for F32Entries<'a> {
    const MOST_DIRECT: usize = 4;

    #[inline(always)]
    fn new(bytes: &'a [u8], stride: usize) -> Self {
        Self { bytes, stride }
    }
    #[inline(always)]
    fn element(self, entry: usize, element: usize) -> f32 {
        let bytes = &self.bytes[entry * self.stride + 4 * element..][..4];
        f32::from_ne_bytes(bytes.try_into().expect("four bytes"))
    }
}

/// Entries of a 16-bit float type, which `$load` widens eight at a time.
macro_rules! half_entries {
    ($(#[$doc:meta])* $entries:ident, $half:ty, $load:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $entries<'a> {
            bytes: &'a [u8],
            stride: usize,
        }

        impl Entries for $entries<'_> {
            #[inline(always)]
            unsafe fn octet<S: Simd>(self, s: S, entry: usize, octet: usize) -> S::F {
                // SAFETY: the caller's promise.
                s.$load(unsafe { bytes_at(self.bytes, entry * self.stride + 16 * octet) })
            }
            #[inline(always)]
            fn prefetch(self, entry: usize, octet: usize, octets: usize) {
                prefetch_bytes(self.bytes, entry * self.stride + 16 * octet, 16 * octets);
            }
        }

        impl<'a> StoredEntries<'a> for $entries<'a> {
            const MOST_DIRECT: usize = 4;

            #[inline(always)]
            fn new(bytes: &'a [u8], stride: usize) -> Self {
                Self { bytes, stride }
            }
            #[inline(always)]
            fn element(self, entry: usize, element: usize) -> f32 {
                let bytes = &self.bytes[entry * self.stride + 2 * element..][..2];
                <$half>::from_ne_bytes(bytes.try_into().expect("two bytes")).to_f32()
            }
        }
    };
}

half_entries!(
    /// f16 entries.
    F16Entries,
    f16,
    load_f16
);
half_entries!(
    /// bf16 entries.
    Bf16Entries,
    bf16,
    load_bf16
);

impl Entries for Q8Entries<'_> {
    const BLOCK_OCTETS: usize = Q8_0_LEN / 8;
    #[inline(always)]
    unsafe fn octet<S: Simd>(self, s: S, entry: usize, octet: usize) -> S::F {
        let (block, octet) = (octet / 4, octet % 4);
        let start = entry * self.stride + block * Q8_0_BYTES;
        // SAFETY: the caller's promise: the octet, hence its block, lies inside.
        let (step, bytes): (&[u8; 2], &[u8; 8]) =
            unsafe { (bytes_at(self.bytes, start), bytes_at(self.bytes, start + 2 + 8 * octet)) };
        // Eleven bits times seven: the product is exact.
        s.mul(s.splat(s.widen_f16(*step)), s.load_i8(bytes))
    }
    #[inline(always)]
    fn prefetch(self, entry: usize, octet: usize, octets: usize) {
        prefetch_bytes(
            self.bytes,
            entry * self.stride + octet / 4 * Q8_0_BYTES,
            octets.div_ceil(4) * Q8_0_BYTES,
        );
    }
}

impl<'a> StoredEntries<'a> for Q8Entries<'a> {
    const MOST_DIRECT: usize = 3;

    #[inline(always)]
    fn new(bytes: &'a [u8], stride: usize) -> Self {
        Self { bytes, stride }
    }
    #[inline(always)]
    fn element(self, entry: usize, element: usize) -> f32 {
        let block = &self.bytes[entry * self.stride + element / Q8_0_LEN * Q8_0_BYTES..][..Q8_0_BYTES];
        f16::from_ne_bytes([block[0], block[1]]).to_f32() * f32::from(block[2 + element % Q8_0_LEN] as i8)
    }
}

/// Entries widened to f32 and padded with zeros to whole octets.
#[derive(Clone, Copy)]
pub(super) struct WideEntries<'a> {
    octets: &'a [F32x8],
    per_entry: usize,
}

impl Entries for WideEntries<'_> {
    #[inline(always)]
    unsafe fn octet<S: Simd>(self, s: S, entry: usize, octet: usize) -> S::F {
        let at = entry * self.per_entry + octet;
        debug_assert!(at < self.octets.len());
        // SAFETY: the caller's promise.
        s.load(unsafe { &self.octets.get_unchecked(at).0 })
    }
}

impl<'a> WideEntries<'a> {
    /// Widens entries `range` of `from` into the same ones of `to`. `width` is the number of elements of an entry.
    ///
    /// # Safety
    /// `range` must lie inside of `from`, whose entries hold at least `width` elements.
    #[inline(always)]
    pub(super) unsafe fn widen<'b, S: Simd, R: StoredEntries<'b>>(
        s: S,
        from: R,
        range: std::ops::Range<usize>,
        width: usize,
        to: &'a mut [F32x8],
    ) -> Self {
        let per_entry = width.div_ceil(8);
        for (entry, to) in range.clone().zip(to[range.start * per_entry..].chunks_exact_mut(per_entry)) {
            let (quads, rest) = to[..width / 8].as_chunks_mut::<4>();
            for (quad, to) in quads.iter_mut().enumerate() {
                // Read before written, so that a q8_0 block's step is widened once for its four octets.
                let mut lanes = [s.splat(0.0); 4];
                for (i, lanes) in lanes.iter_mut().enumerate() {
                    // SAFETY: `entry` is in `range`, and the octet in the first `width` elements.
                    *lanes = unsafe { from.octet(s, entry, 4 * quad + i) };
                }
                for (lanes, to) in lanes.iter().zip(to) {
                    s.store(*lanes, &mut to.0);
                }
            }
            for (octet, to) in rest.iter_mut().enumerate() {
                // SAFETY: as above.
                s.store(unsafe { from.octet(s, entry, width / 32 * 4 + octet) }, &mut to.0);
            }
            for element in width / 8 * 8..width {
                to[width / 8].0[element % 8] = from.element(entry, element);
            }
        }
        Self { octets: to, per_entry }
    }
}
