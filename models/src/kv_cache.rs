//! The paged key/value cache: one pool of fixed-size blocks per layer, written in place.
use crate::backend::Backend;
use crate::error::ModelError;
use crate::opaque::Opaque;
use ember_formats::{KvLayout, KvType, dequantize};
use ember_loaders::checkpoint::ModelConfig;
use memmap2::MmapMut;
use std::ops::{Deref, DerefMut};

/// One layer's pool, `[n_blocks][n_kv_heads][block_len][head_dim]` for K and the same for V.
///
/// Like [`PackedMatrix`](crate::PackedMatrix), a handle that does not mention a Burn backend: no Burn CPU tensor can
/// hold f16 or q8_0 pages.
#[derive(Debug)]
pub enum KvPages {
    /// Pages in host memory, in the layout's element type.
    Host {
        /// Keys.
        k: HostPool,
        /// Values.
        v: HostPool,
    },
    /// Pages in device memory, as the backend keeps them.
    Device(Opaque),
}

impl KvPages {
    /// Zeroed pages in host memory. Those never written to take no physical memory.
    ///
    /// # Errors
    /// [`ModelError::KvCache`] when the memory is not to be had.
    pub fn host(layout: KvLayout, n_blocks: usize) -> Result<Self, ModelError> {
        let zeroed = || n_blocks.checked_mul(layout.block_bytes()).and_then(HostPool::zeroed);
        match (zeroed(), zeroed()) {
            (Some(k), Some(v)) => Ok(Self::Host { k, v }),
            _ => Err(ModelError::KvCache(format!(
                "{} entries do not fit into memory",
                n_blocks * layout.block_len
            ))),
        }
    }

    /// The host pools of keys and of values.
    ///
    /// # Panics
    /// If the pages are on a device: the operation in use has no body for that backend.
    pub fn as_host(&self) -> (&[u8], &[u8]) {
        match self {
            Self::Host { k, v } => (k, v),
            Self::Device(_) => panic!("pages in device memory reached an operation on host memory"),
        }
    }

    /// [`as_host`](Self::as_host), to write to.
    ///
    /// # Panics
    /// As [`as_host`](Self::as_host).
    pub fn as_host_mut(&mut self) -> (&mut [u8], &mut [u8]) {
        match self {
            Self::Host { k, v } => (k, v),
            Self::Device(_) => panic!("pages in device memory reached an operation on host memory"),
        }
    }
}

/// Host memory of one layer's keys or values.
///
/// Mapped from the system and not taken from the allocator, which may have used the memory before and would write the
/// zeros: a cache for a long context takes the time and the memory of what is used of it.
#[derive(Debug)]
pub struct HostPool(MmapMut);

impl HostPool {
    /// `None` when the system refuses.
    fn zeroed(len: usize) -> Option<Self> {
        MmapMut::map_anon(len).ok().map(Self)
    }
}

impl Deref for HostPool {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for HostPool {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// The first `entries` entries behind a block table, read from a host pool as f32 `[entries, n_kv_heads, head_dim]`.
pub fn read_entries(layout: &KvLayout, pool: &[u8], block_table: &[u32], entries: usize) -> Vec<f32> {
    let mut out = vec![0.0; entries * layout.n_kv_heads * layout.head_dim];
    for (i, row) in out.chunks_exact_mut(layout.head_dim).enumerate() {
        let (entry, head) = (i / layout.n_kv_heads, i % layout.n_kv_heads);
        let block = block_table[entry / layout.block_len] as usize;
        let at = (block * layout.n_kv_heads + head) * layout.block_len + entry % layout.block_len;
        dequantize(layout.ty.ggml_type(), &pool[at * layout.row_bytes()..(at + 1) * layout.row_bytes()], row);
    }
    out
}

/// The pools of all layers.
#[derive(Debug)]
pub struct KvCache {
    layout: KvLayout,
    n_blocks: usize,
    layers: Vec<KvPages>,
}

impl KvCache {
    /// KV entries per block.
    pub const BLOCK_LEN: usize = KvLayout::DEFAULT_BLOCK_LEN;

    /// A zeroed cache for at least `n_entries` KV entries, where the backend keeps its pages.
    ///
    /// # Errors
    /// [`ModelError::KvCache`] when the type does not fit the head size or the pages do not fit into memory.
    pub fn new<B: Backend>(
        config: &ModelConfig,
        ty: KvType,
        n_entries: usize,
        device: &B::Device,
    ) -> Result<Self, ModelError> {
        let layout = KvLayout::new(ty, Self::BLOCK_LEN, config.n_kv_heads, config.head_dim)
            .map_err(|error| ModelError::KvCache(error.to_string()))?;
        let n_blocks = n_entries.div_ceil(Self::BLOCK_LEN);
        if n_blocks > u32::MAX as usize / Self::BLOCK_LEN {
            return Err(ModelError::KvCache(format!("{n_entries} entries do not fit into memory")));
        }
        let layers =
            (0..config.n_layers).map(|_| B::kv_pages(layout, n_blocks, device)).collect::<Result<_, _>>()?;
        Ok(Self { layout, n_blocks, layers })
    }

    /// Element type, block length and head geometry.
    pub fn layout(&self) -> KvLayout {
        self.layout
    }

    /// Number of blocks in each layer's pool.
    pub fn n_blocks(&self) -> usize {
        self.n_blocks
    }

    /// Number of slots (KV entries) in each layer's pool.
    pub fn n_slots(&self) -> usize {
        self.n_blocks * self.layout.block_len
    }

    /// Bytes of all layers' pools.
    pub fn n_bytes(&self) -> usize {
        2 * self.layers.len() * self.n_blocks * self.layout.block_bytes()
    }

    /// The pool of one layer.
    pub fn layer_mut(&mut self, layer: usize) -> &mut KvPages {
        &mut self.layers[layer]
    }
}
