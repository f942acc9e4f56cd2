//! The context of one step: made once, and read by every layer and every operation of the backend.
use crate::backend::{Backend, KvLayout};
use crate::batch::SequenceRows;
use crate::error::ModelError;
use crate::layers::rope::RopeTable;
use crate::opaque::Opaque;
use std::ops::Range;

/// The rows of one step, without their hidden states.
#[derive(Debug)]
pub struct Step<'a, B: Backend> {
    /// Angles of the rows.
    pub rope: RopeTable<B>,
    /// Mistral 3's multiplier of each row's rotated queries, when any differs from one.
    pub query_scale: Option<Vec<f32>>,
    /// The keys that each row attends to: KV entries of its sequence, or rows of the step when there is no cache.
    pub visible: Vec<Range<u32>>,
    /// The rows in the paged cache; `None` when the keys and values are those of the step's own rows.
    paged: Option<Paged<'a>>,
}

/// The rows of a step in the paged cache.
#[derive(Debug)]
pub struct Paged<'a> {
    /// Element type, block length and head geometry of the pages.
    pub layout: KvLayout,
    /// Physical KV slot each row writes.
    pub slots: &'a [u32],
    /// The sequences, covering the rows in order.
    pub sequences: &'a [SequenceRows],
    /// The step as the backend keeps it on its device, if it does.
    pub device: Option<Opaque>,
}

impl<'a, B: Backend> Step<'a, B> {
    /// A step whose row `i` attends to the rows `visible[i]`.
    pub fn without_cache(
        rope: RopeTable<B>,
        query_scale: Option<Vec<f32>>,
        visible: Vec<Range<u32>>,
    ) -> Self {
        Self { rope, query_scale, visible, paged: None }
    }

    /// A step of `sequences` over pages of `layout`, its row `i` writing slot `slots[i]`.
    ///
    /// # Errors
    /// [`ModelError::Device`] when the device cannot hold the step's tables.
    pub fn over_pages(
        rope: RopeTable<B>,
        query_scale: Option<Vec<f32>>,
        slots: &'a [u32],
        sequences: &'a [SequenceRows],
        layout: KvLayout,
        device: &B::Device,
    ) -> Result<Self, ModelError> {
        let visible = sequences.iter().flat_map(SequenceRows::visible).collect();
        let mut step = Self::without_cache(rope, query_scale, visible);
        let mut paged = Paged { layout, slots, sequences, device: None };
        paged.device = B::upload_step(&step, &paged, device)?;
        step.paged = Some(paged);
        Ok(step)
    }

    /// True when the rows are written to a cache.
    pub fn has_pages(&self) -> bool {
        self.paged.is_some()
    }

    /// The rows in the paged cache.
    ///
    /// # Panics
    /// If the step has none.
    pub fn paged(&self) -> &Paged<'a> {
        self.paged.as_ref().expect("operations on pages are called in steps over pages")
    }

    /// Each sequence with the KV entries that its rows attend to.
    ///
    /// # Panics
    /// As [`paged`](Self::paged).
    pub fn sequences(&self) -> impl Iterator<Item = (&'a SequenceRows, &[Range<u32>])> {
        self.paged().sequences.iter().map(|sequence| (sequence, &self.visible[sequence.rows.clone()]))
    }
}
