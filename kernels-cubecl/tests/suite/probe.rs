//! What a device does at best.
use crate::device::gpu;
use ember_kernels_cubecl::probe;

#[test]
fn every_device_has_a_floor() {
    let floor = probe::floor(&gpu()).unwrap();
    // A gigabyte and a billion operations a second: less than any device that is worth using.
    assert!(floor.copy_bytes_per_second > 1e8 && floor.copy_bytes_per_second.is_finite(), "{floor:?}");
    assert!(floor.operations_per_second > 1e7 && floor.operations_per_second.is_finite(), "{floor:?}");
}
