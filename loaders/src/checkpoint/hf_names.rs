//! Tensor names and row order: from HF's to GGUF's.

use super::arch::DECODER;

/// The GGUF name of a text tensor; names that have no counterpart (a vision tower's) are left as they are.
///
/// Parts of a block that have no counterpart keep the `blk.N.` prefix, so that the layout check sees them.
pub(super) fn gguf_name(hf: &str) -> String {
    let name = hf.strip_prefix("language_model.").unwrap_or(hf);
    let Some(body) = body(name) else { return hf.to_owned() };
    if let Some((layer, part)) = body.strip_prefix("layers.").and_then(|rest| rest.split_once('.')) {
        return format!("blk.{layer}.{}", block_part(part));
    }
    let outside = |module: &str| DECODER.outside().find(|part| part.alias == module);
    match body.rsplit_once('.').map(|(module, field)| (outside(module), field)) {
        Some((Some(part), field)) => format!("{}.{field}", part.name),
        _ => hf.to_owned(),
    }
}

/// The name within the decoder. The head, and a headless model (an embedding model's folder), have no prefix at all.
fn body(name: &str) -> Option<&str> {
    let bare = ["layers.", "embed_tokens.", "norm.", "lm_head."].iter().any(|start| name.starts_with(start));
    name.strip_prefix("model.language_model.").or(name.strip_prefix("model.")).or(bare.then_some(name))
}

fn block_part(part: &str) -> String {
    let (module, field) = part.rsplit_once('.').unwrap_or((part, ""));
    if module == "self_attn.rotary_emb" {
        // Stored by old versions of transformers although it follows from the configuration.
        return "attn_rot_freqs.weight".to_owned();
    }
    match DECODER.block.iter().find(|described| described.alias == module) {
        Some(described) => format!("{}.{field}", described.name),
        None => part.to_owned(),
    }
}

/// Reorders the rows of each head from HF's halves (row `i` pairs with `i + head_dim / 2`) to adjacent pairs
/// (`2 i` with `2 i + 1`), as llama.cpp's converter does for Q and K.
///
/// `rows` are those of `n_heads` heads of `head_dim` rows each, `row_bytes` bytes a row.
///
/// # Panics
/// If the length of `rows` is not the product of the three, or `head_dim` is odd.
pub(super) fn pair_adjacent_rows(rows: &[u8], n_heads: usize, head_dim: usize, row_bytes: usize) -> Vec<u8> {
    assert_eq!(rows.len(), n_heads * head_dim * row_bytes, "rows of whole heads");
    assert!(head_dim.is_multiple_of(2), "heads of whole pairs");
    let half = head_dim / 2 * row_bytes;
    let mut paired = Vec::with_capacity(rows.len());
    for head in rows.chunks_exact(2 * half) {
        let (first, second) = head.split_at(half);
        for (a, b) in first.chunks_exact(row_bytes).zip(second.chunks_exact(row_bytes)) {
            paired.extend_from_slice(a);
            paired.extend_from_slice(b);
        }
    }
    paired
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_every_prefix() {
        for (hf, gguf) in [
            ("model.embed_tokens.weight", "token_embd.weight"),
            ("model.norm.weight", "output_norm.weight"),
            ("lm_head.weight", "output.weight"),
            ("model.layers.3.self_attn.q_proj.weight", "blk.3.attn_q.weight"),
            ("model.layers.3.self_attn.k_proj.bias", "blk.3.attn_k.bias"),
            ("model.layers.0.self_attn.q_norm.weight", "blk.0.attn_q_norm.weight"),
            ("model.layers.11.post_attention_layernorm.weight", "blk.11.ffn_norm.weight"),
            ("language_model.model.layers.2.mlp.down_proj.weight", "blk.2.ffn_down.weight"),
            ("model.language_model.layers.2.input_layernorm.weight", "blk.2.attn_norm.weight"),
            ("language_model.lm_head.weight", "output.weight"),
            ("model.language_model.norm.weight", "output_norm.weight"),
            ("model.layers.1.mlp.gate.weight", "blk.1.mlp.gate.weight"),
            ("model.layers.1.self_attn.rotary_emb.inv_freq", "blk.1.attn_rot_freqs.weight"),
            ("layers.5.mlp.up_proj.weight", "blk.5.ffn_up.weight"),
            ("norm.weight", "output_norm.weight"),
            ("vision_tower.patch_conv.weight", "vision_tower.patch_conv.weight"),
            ("model.vision_tower.ln_pre.weight", "model.vision_tower.ln_pre.weight"),
        ] {
            assert_eq!(gguf_name(hf), gguf);
        }
    }

    /// Two heads of four rows; the order is that of numpy's reshape(2, 2, 2).swapaxes(1, 2).
    #[test]
    fn rows_are_paired_within_each_head() {
        assert_eq!(pair_adjacent_rows(&[0, 1, 2, 3, 4, 5, 6, 7], 2, 4, 1), [0, 2, 1, 3, 4, 6, 5, 7]);
        assert_eq!(pair_adjacent_rows(&[0, 0, 1, 1, 2, 2, 3, 3], 1, 4, 2), [0, 0, 2, 2, 1, 1, 3, 3]);
    }
}
