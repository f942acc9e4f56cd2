//! NaN and overflows reach the logits of the rows that see them, and no others.
use super::invariance::{BLOCK, in_pieces, tokens};
use super::synthetic;
use ember_models::backend::Backend;
use ember_models::{KvType, TextModel, WeightFormat};

fn model<B: Backend>(change: fn(&str, &mut [f32])) -> TextModel<B> {
    let checkpoint = synthetic::changed(change);
    TextModel::load(&checkpoint, WeightFormat::Packed, &Default::default()).expect("a whole checkpoint")
}

/// A key or a value beyond the type of the cache breaks every logit, and is a number in a type that holds it.
pub fn overflows_of_the_cache_reach_the_logits<B: Backend>() {
    let keys = |name: &str, weights: &mut [f32]| {
        if name.ends_with("attn_k_norm.weight") {
            weights.iter_mut().for_each(|weight| *weight *= 1e6);
        }
    };
    let values = |name: &str, weights: &mut [f32]| {
        if name.ends_with("attn_v.weight") {
            weights.iter_mut().for_each(|weight| *weight *= 1e9);
        }
    };
    let n = BLOCK + 2;
    for (what, change) in [("keys", keys as fn(&str, &mut [f32])), ("values", values)] {
        let model = model::<B>(change);
        // A value of 1e9 overflows the step of q8_0 too, a key of 1e6 does not.
        let narrow = if what == "keys" { &[KvType::F16][..] } else { &[KvType::F16, KvType::Q8_0] };
        for (ty, pieces) in KvType::ALL.into_iter().flat_map(|ty| [(ty, n), (ty, 1)]) {
            let logits = in_pieces(&model, ty, &tokens(n), &[pieces]);
            let overflows = narrow.contains(&ty);
            let right = logits.iter().all(|logit| logit.is_finite() != overflows);
            assert!(right, "{what} in {ty}, pieces of {pieces}");
        }
    }
}

/// The embedding of one token of a prompt is NaN: the rows before it are what they are without it.
pub fn a_broken_token_breaks_what_follows<B: Backend>() {
    const AT: usize = BLOCK + 5;
    let nan = |name: &str, weights: &mut [f32]| {
        if name == "token_embd.weight" {
            let token = tokens(AT + 1)[AT] as usize;
            weights[token * synthetic::HIDDEN + 3] = f32::NAN;
        }
    };
    let (broken, sound) = (model::<B>(nan), model::<B>(|_, _| ()));
    let prompt = tokens(AT + 20);
    assert_eq!(prompt.iter().filter(|&&token| token == prompt[AT]).count(), 1);
    for ty in KvType::ALL {
        for pieces in [&[prompt.len()][..], &[20, 7, 1]] {
            let logits = in_pieces(&broken, ty, &prompt, pieces);
            let expected = in_pieces(&sound, ty, &prompt, pieces);
            let (before, after) = logits.split_at(logits.len() / prompt.len() * AT);
            assert_eq!(before, &expected[..before.len()], "{ty}, pieces {pieces:?}");
            assert!(after.iter().all(|logit| logit.is_nan()), "{ty}, pieces {pieces:?}");
        }
    }
}
