//! Attention over paged keys and values.
//!
//! `y[r, h] = Σ_j softmax_j(scale q[r, h] · k[j, h / group]) v[j, h / group]` over the entries `j` that row `r` sees;
//! a row that sees nothing gives zeros. What a row sees is decided by position alone, never by the value of a score, and
//! what it does not see is never multiplied: zero times NaN is NaN. So a NaN or an infinity in a query, or in a key or a
//! value, comes out of the rows that see it, and of no others.
//!
//! Rows of short runs (a decode step) go to the decode kernel: bound by the bytes of the keys and values, which are
//! read once for all query heads that share them. Rows of long runs (a prefill chunk) go to the prefill kernel: bound
//! by arithmetic.
mod decode;
mod join;
mod plan;
mod prefill;
mod team;
mod tile;

use crate::kv::KvPages;
use crate::{Buffer, Gpu};
use cubecl::prelude::Runtime;
pub use plan::{Plan, SequencePlan};

/// What the largest score begins with. Finite: the difference of two is zero, where that of infinities is NaN.
const LOWEST: f32 = f32::MIN;

/// Attention of all rows of a plan over their pages: `q` and the result are `[t, h, d]`, and query head `i` reads the
/// keys and values of head `i / (h / g)`. Rows of no sequence are left undefined.
///
/// # Panics
/// If the sizes of plan, queries and pages do not fit together.
pub fn paged_attention<R: Runtime>(
    gpu: &Gpu<R>,
    q: &Buffer,
    pages: &KvPages,
    plan: &Plan,
    scale: f32,
) -> Buffer {
    let layout = pages.layout;
    let n_heads = q.len / (plan.rows * layout.head_dim).max(1);
    assert_eq!(q.len, plan.rows * n_heads * layout.head_dim, "queries of {} rows for {layout:?}", plan.rows);
    assert!(n_heads.is_multiple_of(layout.n_kv_heads), "{n_heads} query heads for {layout:?}");
    assert!(
        plan.block_len == layout.block_len && plan.blocks <= pages.n_blocks(),
        "{} blocks of {}, a plan for {} of {}",
        pages.n_blocks(),
        layout.block_len,
        plan.blocks,
        plan.block_len
    );
    let out = gpu.empty(q.len.max(1));
    let problem = Problem { q, pages, plan, scale, n_heads, out: &out };
    decode::launch(gpu, &problem);
    prefill::launch(gpu, &problem);
    Buffer { len: q.len, ..out }
}

/// The operands of both kernels.
struct Problem<'a> {
    q: &'a Buffer,
    pages: &'a KvPages,
    plan: &'a Plan,
    scale: f32,
    n_heads: usize,
    out: &'a Buffer,
}
