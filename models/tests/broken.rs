//! NaN and overflows on the CPU: they reach the logits of the rows that see them, and no others.
mod common;

use burn_ndarray::NdArray;
use common::broken;

#[test]
fn overflows_of_the_cache_reach_the_logits() {
    broken::overflows_of_the_cache_reach_the_logits::<NdArray>();
}

#[test]
fn a_broken_token_breaks_what_follows() {
    broken::a_broken_token_breaks_what_follows::<NdArray>();
}
