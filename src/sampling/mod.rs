//! From logits to a token: penalties, filters, temperature and a seeded draw, in llama.cpp's order.

mod card;
mod filters;
mod logprobs;
mod mask;
mod params;
mod sampler;

pub use card::{Thinking, card};
pub use logprobs::{Logprobs, TokenLogprobs};
pub use mask::TokenMask;
pub use params::{ParamError, ResolvedSampling, SamplingOptions, SamplingParams, Source};
pub use sampler::{Sampler, SamplingError};
