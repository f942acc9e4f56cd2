//! What a result must not depend on.
use super::{synthetic, values};
use ember_models::backend::Backend;
use ember_models::{Batch, KvCache, KvType, SequenceRows, TextModel};

/// KV entries per block.
pub const BLOCK: usize = KvCache::BLOCK_LEN;

/// Fails unless two rows of logits agree; the text says which.
pub type Check = fn(&[f32], &[f32], &str);

/// `n` tokens of the synthetic vocabulary.
pub fn tokens(n: usize) -> Vec<u32> {
    (0..n as u32).map(|i| (i * 37 + 11) % 96).collect()
}

/// Logits of every row of a batch.
pub fn run<B: Backend>(model: &TextModel<B>, cache: &mut KvCache, mut batch: Batch) -> Vec<f32> {
    batch.logits_rows = (0..batch.len() as u32).collect();
    let output = model.step(&batch, cache, &Default::default()).expect("a valid batch");
    values(output.logits.expect("every row was wanted"))
}

/// Logits of all tokens, run in pieces of the given lengths (the last one repeats).
pub fn in_pieces<B: Backend>(model: &TextModel<B>, ty: KvType, tokens: &[u32], pieces: &[usize]) -> Vec<f32> {
    let n_blocks = tokens.len().div_ceil(BLOCK);
    // Physical blocks in reverse: nothing may depend on where a block lies.
    let table: Vec<u32> = (0..n_blocks as u32).rev().collect();
    let mut cache =
        KvCache::new::<B>(model.config(), ty, tokens.len(), &Default::default()).expect("a small cache");
    let (mut logits, mut start, mut piece) = (Vec::new(), 0, pieces.iter().copied());
    let mut len = 1;
    while start < tokens.len() {
        len = piece.next().unwrap_or(len);
        let end = (start + len).min(tokens.len());
        let batch = Batch::single(&tokens[start..end], start as u32, &table, BLOCK);
        logits.extend(run(model, &mut cache, batch));
        start = end;
    }
    logits
}

/// N tokens then one more equal N + 1 at once.
pub fn decode_equals_prefill<B: Backend>(types: &[KvType], check: Check) {
    for quantized in [false, true] {
        let model = synthetic::qwen3::<B>(quantized);
        for ty in types.iter().copied() {
            let tokens = tokens(260);
            // Row i of a prefill sees exactly i + 1 entries, so one prefill and one token-by-token run cover them all.
            let prefill = in_pieces(&model, ty, &tokens, &[260]);
            let decode = in_pieces(&model, ty, &tokens, &[1]);
            check(&prefill, &decode, &format!("{ty:?}, quantized: {quantized}"));
        }
    }
}

/// Rows of a batch do not depend on the others.
pub fn batch_equals_single<B: Backend>(check: Check) {
    let model = synthetic::qwen3::<B>(true);
    let lengths = [1usize, 40, 5, 33];
    let mut cache = KvCache::new::<B>(model.config(), KvType::F16, 8 * BLOCK, &Default::default())
        .expect("a small cache");
    let mut batch = Batch::default();
    let mut next_block = 0;
    for (i, &len) in lengths.iter().enumerate() {
        let blocks = len.div_ceil(BLOCK) as u32;
        let table: Vec<u32> = (next_block..next_block + blocks).collect();
        next_block += blocks;
        let one = Batch::single(&tokens(len + i)[i..], 0, &table, BLOCK);
        let rows = batch.len()..batch.len() + len;
        batch.tokens.extend(one.tokens);
        batch.positions.extend(one.positions);
        batch.slots.extend(one.slots);
        batch.sequences.push(SequenceRows { rows, ..one.sequences[0].clone() });
    }
    let together = run(&model, &mut cache, batch);
    let alone: Vec<f32> = lengths
        .iter()
        .enumerate()
        .flat_map(|(i, &len)| in_pieces(&model, KvType::F16, &tokens(len + i)[i..], &[len]))
        .collect();
    check(&together, &alone, "a batch and each alone");
}
