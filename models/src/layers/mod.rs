//! The layers of the models.
mod attention;
mod block;
mod embedding;
mod linear;
mod mlp;
mod rms_norm;
pub mod rope;

pub use attention::Attention;
pub use block::{Block, BlockShape, Residual};
pub use embedding::Embedding;
pub use linear::Linear;
pub use mlp::Mlp;
pub use rms_norm::RmsNorm;
