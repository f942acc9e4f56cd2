"""Mistakes that the fixtures have to make visible, committed on purpose in the Hugging Face model."""

import copy

import torch

from vision_hf import Spec, encode


def permute(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows (half, pair) as (pair, half), which is how llama.cpp's converter leaves queries and keys."""
    return weight.reshape(heads, 2, -1, weight.shape[-1]).swapaxes(1, 2).reshape(weight.shape)


def other_activation(model):
    silu = model.config.vision_config.hidden_act == "silu"
    for layer in model.model.vision_tower.transformer.layers:
        layer.feed_forward.act_fn = torch.nn.GELU() if silu else torch.nn.SiLU()


def permuted_qk(model):
    heads = model.config.vision_config.num_attention_heads
    for layer in model.model.vision_tower.transformer.layers:
        for linear in (layer.attention.q_proj, layer.attention.k_proj):
            linear.weight.data = permute(linear.weight.data, heads)


def patch_major_merge(model):
    layer = model.model.multi_modal_projector.patch_merger.merging_layer
    area = model.config.spatial_merge_size**2
    columns = layer.weight.data.reshape(layer.weight.shape[0], area, -1)
    layer.weight.data = columns.swapaxes(1, 2).reshape(layer.weight.shape)


def around_rope(change):
    """A mutation of the tower's rotary embedding: `change` makes the forward function out of the original one."""
    def mutate(model):
        rotary = model.model.vision_tower.patch_positional_embedding
        rotary.forward = change(rotary, rotary.forward)
    return mutate


def swapped_axes(_rotary, forward):
    return lambda x, positions: forward(x, positions.flip(-1))


def frequency_major_table(_rotary, forward):
    """The table of half a head written frequency by frequency, and read patch by patch."""
    def table(x, positions):
        parts = []
        for values in forward(x, positions):
            half = values.chunk(2, dim=-1)[0]
            half = half.T.reshape(half.shape)
            parts.append(torch.cat((half, half), dim=-1))
        return tuple(parts)
    return table


def half_split_frequencies(rotary, forward):
    """Rows on the first half of the frequencies and columns on the second, instead of even and odd ones."""
    half = rotary.inv_freq.numel() // 2
    ordered = torch.stack((rotary.inv_freq[:half], rotary.inv_freq[half:]), dim=1).flatten()
    rotary.inv_freq = ordered
    return forward


MUTATIONS = {
    "the other activation": other_activation,
    "queries and keys permuted": permuted_qk,
    "merged patch by patch": patch_major_merge,
    "rows and columns swapped": around_rope(swapped_axes),
    "rotation table transposed": around_rope(frequency_major_table),
    "frequencies split in halves": around_rope(half_split_frequencies),
}


def cosines(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cosine_similarity(a.double(), b.double(), dim=-1)


def check_mutations(spec: Spec, model: torch.nn.Module, image: torch.Tensor, embeddings: torch.Tensor):
    """Refuses weights under which a mutation leaves any token's embedding close to the right one."""
    for name, mutate in MUTATIONS.items():
        if mutate is patch_major_merge and spec.merge == 1:
            continue
        wrong = copy.deepcopy(model)
        mutate(wrong)
        found = cosines(encode(wrong, [image])[0]["embeddings"], embeddings)
        print(f"{spec.name}, {name}: cosine {found.min():.3f} to {found.max():.4f}")
        assert found.max() < 0.999, f"{spec.name}: {name} hardly shows; choose another seed"
