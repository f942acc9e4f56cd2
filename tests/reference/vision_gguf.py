"""Projector files of the tiny models, in llama.cpp's and in Ollama's layout, and the way back to Hugging Face weights."""

import re
from pathlib import Path

import gguf
import numpy as np
import torch

from vision_hf import IMG, IMG_BREAK, Spec

# A projector tensor without `.weight` or `.bias`: Hugging Face's name, llama.cpp's, Ollama's.
NAMES = [
    ("vision_tower.patch_conv", "v.patch_embd", "v.patch_conv"),
    ("vision_tower.ln_pre", "v.pre_ln", "v.encoder_norm"),
    ("multi_modal_projector.norm", "mm.input_norm", "mm.norm"),
    ("multi_modal_projector.patch_merger.merging_layer", "mm.patch_merger", "mm.patch_merger.merging_layer"),
    ("multi_modal_projector.linear_1", "mm.1", "mm.linear_1"),
    ("multi_modal_projector.linear_2", "mm.2", "mm.linear_2"),
]
BLOCK_NAMES = [
    ("attention_norm", "ln1", "attn_norm"),
    ("attention.q_proj", "attn_q", "attn_q"),
    ("attention.k_proj", "attn_k", "attn_k"),
    ("attention.v_proj", "attn_v", "attn_v"),
    ("attention.o_proj", "attn_out", "attn_output"),
    ("ffn_norm", "ln2", "ffn_norm"),
    ("feed_forward.gate_proj", "ffn_gate", "ffn_gate"),
    ("feed_forward.up_proj", "ffn_up", "ffn_up"),
    ("feed_forward.down_proj", "ffn_down", "ffn_down"),
]


def names(blocks: int) -> list[tuple[str, str, str]]:
    layers = "vision_tower.transformer.layers"
    return NAMES + [
        (f"{layers}.{i}.{hf}", f"v.blk.{i}.{llama}", f"v.blk.{i}.{ollama}")
        for i in range(blocks) for hf, llama, ollama in BLOCK_NAMES
    ]


def keep_image_break():
    """llama.cpp's converter means to put the embedding of [IMG_BREAK] into the projector file, and llama.cpp does not
    load one without it; but this version drops everything of the text model before it gets that far."""
    from conversion.base import MmprojModel
    from conversion.llava import LlavaVisionModel

    def filter_tensors(cls, item):
        return item if "embed_tokens.weight" in item[0] else super(LlavaVisionModel, cls).filter_tensors(item)

    assert MmprojModel.filter_tensors(("model.language_model.embed_tokens.weight", None)) is None
    LlavaVisionModel.filter_tensors = classmethod(filter_tensors)


def load_projector(model: torch.nn.Module, path: Path):
    """Puts the weights of a llama.cpp projector, dequantized by gguf-py, into the Hugging Face model they came from."""
    hf_names = {llama: hf for hf, llama, _ in names(model.config.vision_config.num_hidden_layers)}
    heads = model.config.vision_config.num_attention_heads
    parameters = {n: p for n, p in model.model.named_parameters() if not n.startswith("language_model.")}
    for tensor in gguf.GGUFReader(path).tensors:
        if tensor.name == "v.token_embd.img_break":
            row = model.model.language_model.embed_tokens.weight[IMG_BREAK].detach()
            assert np.allclose(tensor.data, row, rtol=2**-8), "not the embedding of [IMG_BREAK]"
            continue
        value = np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        name, _, kind = tensor.name.rpartition(".")
        if re.search(r"attn_[qk]$", name):  # the converter turned rows (half, pair) into (pair, half)
            rows = value.reshape(heads, -1, 2, value.shape[-1])
            value = np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(value.shape)
        with torch.no_grad():
            target = parameters.pop(f"{hf_names[name]}.{kind}")
            target.copy_(torch.from_numpy(value).reshape(target.shape))
    assert not parameters, f"{path} lacks {list(parameters)}"


def ollama_tensors(model: torch.nn.Module) -> dict[str, np.ndarray]:
    """The projector under Ollama's names, queries and keys as Hugging Face has them."""
    state = {name: p.detach().numpy() for name, p in model.model.named_parameters()}
    out = {}
    for hf, _, ollama in names(model.config.vision_config.num_hidden_layers):
        for kind in ("weight", "bias"):
            if f"{hf}.{kind}" in state:
                out[f"{ollama}.{kind}"] = state[f"{hf}.{kind}"]
    return out


def add_ollama_vision_keys(writer: gguf.GGUFWriter, model: torch.nn.Module):
    """What Ollama's converter (convert_mistral.go) says about the tower: neither its activation nor its epsilon, and
    not how pixels are normalised."""
    vision, text = model.config.vision_config, model.config.text_config
    numbers = {
        "vision.block_count": vision.num_hidden_layers, "vision.embedding_length": vision.hidden_size,
        "vision.feed_forward_length": vision.intermediate_size, "vision.attention.head_count": vision.num_attention_heads,
        "vision.attention.key_length": vision.head_dim, "vision.image_size": vision.image_size,
        "vision.patch_size": vision.patch_size, "vision.num_channels": vision.num_channels,
        "image_token_index": IMG, "spatial_merge_size": model.config.spatial_merge_size, "vocab_size": text.vocab_size,
    }
    for key, value in numbers.items():
        writer.add_uint32(f"mistral3.{key}", value)
    writer.add_float32("mistral3.vision.rope.freq_base", vision.rope_parameters["rope_theta"])
    writer.add_bool("mistral3.mm.projector_bias", model.config.multimodal_projector_bias)
    writer.add_string("mistral3.mm.projector_hidden_act", model.config.projector_hidden_act)


def add_clip_vision_keys(writer: gguf.GGUFWriter, spec: Spec, model: torch.nn.Module):
    vision = model.config.vision_config
    numbers = {
        "block_count": vision.num_hidden_layers, "embedding_length": vision.hidden_size,
        "feed_forward_length": vision.intermediate_size, "attention.head_count": vision.num_attention_heads,
        "image_size": vision.image_size, "patch_size": vision.patch_size, "spatial_merge_size": spec.merge,
    }
    writer.add_string("clip.projector_type", "pixtral")
    for key, value in numbers.items():
        writer.add_uint32(f"clip.vision.{key}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    writer.add_bool("clip.use_silu" if vision.hidden_act == "silu" else "clip.use_gelu", True)
    writer.add_array("clip.vision.image_mean", list(spec.mean))
    writer.add_array("clip.vision.image_std", list(spec.std))


def finish(writer: gguf.GGUFWriter):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_ollama_projector(spec: Spec, model: torch.nn.Module, out: Path):
    """A file of the projector alone under Ollama's names: with Ollama's keys for a GELU tower; with clip keys for a
    SiLU one, since Ollama has no key for the activation."""
    own_keys = model.config.vision_config.hidden_act == "gelu"
    writer = gguf.GGUFWriter(out, "mistral3" if own_keys else "clip")
    if own_keys:
        add_ollama_vision_keys(writer, model)
    else:
        add_clip_vision_keys(writer, spec, model)
    for name, value in ollama_tensors(model).items():
        writer.add_tensor(name, value)
    finish(writer)


def write_ollama_model(model: torch.nn.Module, text_file: Path, out: Path):
    """The whole model in one file, as Ollama's converter writes it: matrices F16, vectors F32, Ollama's own keys for
    YaRN and the query scale."""
    reader = gguf.GGUFReader(text_file)
    text = model.config.text_config
    rope = text.rope_parameters
    writer = gguf.GGUFWriter(out, "mistral3")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_quantization_version(2)
    same = ("block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
            "attention.head_count_kv", "attention.layer_norm_rms_epsilon", "attention.key_length",
            "attention.value_length", "rope.dimension_count", "rope.freq_base")
    for field in reader.fields.values():
        if field.name.startswith("tokenizer.") or field.name.removeprefix("mistral3.") in same:
            sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type)
    for key in ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"):
        writer.add_float32(f"mistral3.rope.scaling.{key}", rope[key])
    writer.add_string("mistral3.rope.scaling.type", rope["rope_type"])
    writer.add_uint32("mistral3.rope.scaling.original_context_length", rope["original_max_position_embeddings"])
    writer.add_float32("mistral3.rope.scaling_beta", rope["llama_4_scaling_beta"])
    add_ollama_vision_keys(writer, model)
    tensors = {t.name: np.asarray(t.data) for t in reader.tensors} | ollama_tensors(model)
    for name, value in tensors.items():
        writer.add_tensor(name, value if value.ndim == 1 else value.astype(np.float16))
    finish(writer)
