"""GGUF files of the tiny models: llama.cpp's converter, requantization, and the way back to Hugging Face weights."""

import re
import runpy
import sys
from pathlib import Path

import gguf
import libgguf
import numpy as np
import torch

HF_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(llama_cpp: Path, pre: str, folder: Path, out: Path, *options: str, outtype: str = "f32"):
    """llama.cpp's converter, told the pre-tokenizer: it recognises vocabularies by a hash, and does not know ours."""
    import conversion.base

    conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
    arguments = sys.argv
    sys.argv = ["convert_hf_to_gguf.py", str(folder), "--outfile", str(out), "--outtype", outtype, *options]
    try:
        runpy.run_path(str(llama_cpp / "convert_hf_to_gguf.py"), run_name="__main__")
    finally:
        sys.argv = arguments


def quantize(source: Path, out: Path, type_name: str):
    """Rewrites an F32 file with every matrix in one block type (ggml's own quantizer); vectors stay F32."""
    kind = gguf.GGMLQuantizationType[type_name]
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        sub_type = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], sub_type)
    writer.add_file_type(FILE_TYPES[type_name])
    for tensor in reader.tensors:
        if tensor.data.ndim < 2:
            writer.add_tensor(tensor.name, tensor.data)
        elif type_name == "F16":
            writer.add_tensor(tensor.name, tensor.data.astype(np.float16))
        else:
            packed = libgguf.quantize_rows(np.asarray(tensor.data), int(kind))
            writer.add_tensor(tensor.name, packed.view(np.uint8), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


FILE_TYPES = {
    name: gguf.LlamaFileType[f"MOSTLY_{name}"]
    for name in ("F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q6_K", "IQ4_NL", "IQ4_XS")
} | {name: gguf.LlamaFileType[f"MOSTLY_{name}_S"] for name in ("Q3_K", "Q4_K", "Q5_K")}


def load_weights(model: torch.nn.Module, path: Path):
    """Puts a file's weights, dequantized by gguf-py, into the Hugging Face model they came from."""
    reader = gguf.GGUFReader(path)
    interleaved = reader.fields["general.architecture"].contents() in ("llama", "mistral3")
    heads = {"attn_q": model.config.num_attention_heads, "attn_k": model.config.num_key_value_heads}
    state = {}
    for tensor in reader.tensors:
        if tensor.name == "rope_freqs.weight":
            continue
        value = np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        block = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", tensor.name)
        if not block:
            state[HF_NAMES[tensor.name]] = torch.from_numpy(value)
            continue
        layer, part, kind = block.groups()
        if interleaved and part in heads:  # the converter turned rows (half, pair) into (pair, half)
            rows = value.reshape(heads[part], -1, 2, *value.shape[1:])
            value = np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(value.shape)
        state[f"model.layers.{layer}.{HF_NAMES[part]}.{kind}"] = torch.from_numpy(value)
    if "lm_head.weight" not in state:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
