//! Every kernel of a device against the CPU.
use anyhow::Result;
use ember_loaders::gguf::GgmlType;
use ember_models::backend::Backend;
use ember_models::backend::conformance;

/// Rows of the products: each variant for a few rows, tiles with rows left over, and many tiles.
const ROWS: [usize; 8] = [1, 2, 3, 4, 5, 17, 64, 513];

/// See [`check`](super::check).
pub fn check<B: Backend>(device: &B::Device, report: &mut dyn FnMut(bool, String)) -> Result<()> {
    let report = &mut |finding: conformance::Finding| report(finding.holds(), finding.to_string());
    conformance::operations::<B>(device, report)?;
    for (seed, &ty) in GgmlType::ALL.iter().enumerate() {
        let matrix = |seed, rows| conformance::random_matrix(ty, seed, rows, 768);
        let matrices = [matrix(2 * seed as u64, 150), matrix(2 * seed as u64 + 1, 67)];
        conformance::products::<B>(&matrices, &ROWS, limit(ty), device, report)?;
    }
    Ok(())
}

/// Tensor cores round both sides of a product to bf16; nothing rounds more.
fn limit(ty: GgmlType) -> f32 {
    if ty == GgmlType::F32 { 1e-5 } else { 1e-2 }
}
