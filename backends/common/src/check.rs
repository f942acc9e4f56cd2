//! Every kernel of a device against the CPU.
use crate::DeviceError;
use burn_cubecl::cubecl::Runtime;
use ember_kernels_cubecl::Gpu;
use ember_loaders::gguf::GgmlType;
use ember_models::backend::Backend;
use ember_models::backend::conformance;

/// Rows of the products: each variant for a few rows, tiles with rows left over, and many tiles.
const ROWS: [usize; 9] = [1, 2, 3, 4, 5, 8, 17, 64, 513];
/// Sums of f32 products in another order.
const F32_LIMIT: f32 = 1e-5;
/// Matrix units round both sides of a product to f16.
const F16_LIMIT: f32 = 3e-3;

/// Compares every kernel of a device with its definition on the CPU: all block types, row counts and page types.
/// `report` gets, for each comparison, whether it holds and its text.
///
/// # Errors
/// A device that fails.
pub fn check<R, B>(device: &R::Device, report: &mut dyn FnMut(bool, String)) -> Result<(), DeviceError>
where
    R: Runtime,
    B: Backend<Device = R::Device>,
{
    // Whether the products use matrix units.
    let has_matrix_units = Gpu::<R>::open(device).caps().matrix.is_some();
    let report = &mut |finding: conformance::Finding| report(finding.holds(), finding.to_string());
    conformance::operations::<B>(device, report)?;
    for (seed, ty) in GgmlType::ALL.into_iter().enumerate() {
        let matrix = |seed, rows| conformance::random_matrix(ty, seed, rows, 768);
        let limit = if has_matrix_units && ty != GgmlType::F32 { F16_LIMIT } else { F32_LIMIT };
        let matrices = [matrix(2 * seed as u64, 150), matrix(2 * seed as u64 + 1, 67)];
        conformance::products::<B>(&matrices, &ROWS, limit, device, report)?;
        conformance::broken_products::<B>(ty, &ROWS, limit, device, report)?;
    }
    Ok(())
}
