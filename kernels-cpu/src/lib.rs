//! CPU kernels over slices.
