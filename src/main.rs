//! The `ember` command.
fn main() {}
