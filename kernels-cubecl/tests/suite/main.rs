//! Every kernel against its definition in plain Rust, on the device of the feature that is compiled in.
mod activation;
mod attention;
mod attention_support;
mod blocks;
mod device;
mod grid;
mod kv_reference;
mod linear;
mod norm;
mod not_finite;
mod pick;
mod probe;
mod rope;
mod rows;
mod under_test;
