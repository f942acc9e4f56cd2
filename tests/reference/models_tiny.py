#!/usr/bin/env python3
"""Makes tests/fixtures/models: tiny seeded models of every architecture as GGUF, with the logits of Hugging Face
transformers (f32, eager attention). See README.md beside this file.

usage: models_tiny.py LLAMA_CPP_DIR [OUTDIR] [NAME...]
"""

import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

os.environ["TQDM_DISABLE"] = "1"
# llama.cpp's converter needs the gguf package of its own tree, before any installed one.
LLAMA_CPP = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
if not (LLAMA_CPP / "convert_hf_to_gguf.py").is_file():
    sys.exit(f"{__doc__}\n{LLAMA_CPP} has no convert_hf_to_gguf.py")
sys.path[:0] = [str(LLAMA_CPP / "gguf-py"), str(LLAMA_CPP)]

import models_gguf
from models_hf import TOKENIZERS, Run, Spec, build, logits, reference, save, write_old_config

DEFAULT = {"rope_type": "default", "rope_theta": 1e6}
# head_dim is not hidden_size / heads, as in Qwen3 and Mistral Small.
WIDE = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32)
SMALL = dict(WIDE, hidden_size=32, intermediate_size=64)
ONE_LAYER = dict(SMALL, num_hidden_layers=1)
LLAMA = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1)
BLOCK32 = dict(WIDE, num_hidden_layers=1)
BLOCK256 = dict(BLOCK32, hidden_size=256, intermediate_size=256, num_attention_heads=8)


def ministral_rope(original: int) -> dict:
    return {
        "type": "yarn", "rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": original,
        "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1,
    }


LLAMA3_ROPE = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 256,
}
QWEN = dict(family="qwen3", tokenizer="qwen2", extra={"max_position_embeddings": 4096, "rms_norm_eps": 1e-6})
MISTRAL_SMALL = dict(
    family="mistral", tokenizer="tekken", dims=ONE_LAYER, rope={"rope_type": "default", "rope_theta": 1e9}, seed=5,
    extra={"max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "sliding_window": None},
)

SPECS = [
    Spec("qwen3-tied", **QWEN, dims=WIDE, rope=DEFAULT, tied=True, seed=1, types=("F32", "F16", "Q8_0")),
    Spec("qwen3-untied", **QWEN, dims=SMALL, rope=DEFAULT, seed=2, hf_dtype="float16", hf_shard="64KB"),
    Spec("qwen3-yarn", **QWEN, dims=ONE_LAYER, tied=True, seed=3,
         rope={"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 1024}),
    Spec("qwen3-linear", **QWEN, dims=ONE_LAYER, tied=True, seed=4, rope={"rope_type": "linear", "rope_theta": 1e6, "factor": 4.0}),
    Spec("ministral3", "ministral3", "tekken", WIDE, ministral_rope(16384), seed=6, qk_gain=1, types=("F32", "F16", "Q8_0"),
         runs=(Run(), Run("crossing", 16368, 32), Run("far", 200000, 32)),
         extra={"max_position_embeddings": 262144, "rms_norm_eps": 1e-5}),
    # All 96 positions in one file are far past its original context of 16.
    Spec("ministral3-short", "ministral3", "tekken", SMALL, ministral_rope(16), seed=7, hf_dtype="bfloat16",
         runs=(Run(length=96),), extra={"max_position_embeddings": 256, "rms_norm_eps": 1e-5}),
    Spec("mistral-small", **MISTRAL_SMALL, architecture="Ministral3ForCausalLM"),
    Spec("mistral-small-llama", **MISTRAL_SMALL),
    Spec("llama", "llama", "llama3", dict(LLAMA, num_key_value_heads=2), {"rope_type": "default", "rope_theta": 1e4}, seed=13,
         extra={"max_position_embeddings": 2048, "rms_norm_eps": 1e-5}),
    Spec("llama3-rope", "llama", "llama3", LLAMA, LLAMA3_ROPE, tied=True, seed=14, runs=(Run(length=64),), extra={"max_position_embeddings": 8192, "rms_norm_eps": 1e-5}),
    Spec("qwen2", "qwen2", "qwen2", LLAMA, DEFAULT, tied=True, seed=10, types=("F32", "BF16"), hf_dtype="bfloat16",
         extra={"max_position_embeddings": 4096, "rms_norm_eps": 1e-6}),
    Spec("blocks-32", **QWEN, dims=BLOCK32, rope=DEFAULT, tied=True, seed=11, runs=(Run(length=16),),
         types=("Q4_0", "Q4_1", "Q5_0", "Q5_1", "IQ4_NL")),
    Spec("blocks-256", **QWEN, dims=BLOCK256, rope=DEFAULT, tied=True, seed=12, runs=(Run(length=16),),
         types=("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS")),
]


def make(spec: Spec, out: Path, scratch: Path):
    """out/NAME/TYPE.gguf, with out/NAME/reference*.safetensors for F32 and reference-TYPE.safetensors for the others:
    the logits of the model with the dequantized weights, so that only the rounding of activations is left."""
    model = build(spec)
    target, folder = out / spec.name, scratch / spec.name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    save(model, spec, folder)
    if spec.name == "qwen2":
        write_old_config(folder)
    if spec.hf_dtype:
        shutil.copytree(folder, target / "hf")
    f32 = scratch / f"{spec.name}.gguf"
    models_gguf.convert(LLAMA_CPP, TOKENIZERS[spec.tokenizer]["pre"], folder, f32)

    probe = torch.arange(40, 60)
    before = logits(model, probe, probe)
    models_gguf.load_weights(model, f32)
    assert torch.equal(before, logits(model, probe, probe)), f"{spec.name}: the F32 file does not hold the model's weights"
    for kind in spec.types:
        path = target / f"{kind.lower()}.gguf"
        if kind == "F32":
            shutil.copyfile(f32, path)
        else:
            models_gguf.quantize(f32, path, kind)
        models_gguf.load_weights(model, path)
        for run in spec.runs if kind == "F32" else (Run(length=16),):
            parts = ["reference", run.suffix, kind.lower() if kind != "F32" else ""]
            result = reference(model, spec, run)
            save_file(result, target / ("-".join(filter(None, parts)) + ".safetensors"))
            spread = result["logits"].std().item()
            note = ""
            if "logits_exact_angles" in result:
                shift = (result["logits"] - result["logits_exact_angles"]).abs().max() / result["logits"].abs().max()
                note = f", rounding of angles moves them by {shift:.1e} of the largest"
            print(f"{spec.name} {kind} {run.suffix or 'from 0'}: logits deviate by {spread:.2f}{note}")


def main():
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parents[1] / "fixtures/models"
    logging.basicConfig(level=logging.ERROR)  # the converter's own call then changes nothing
    transformers.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as scratch:
        for spec in SPECS:
            if not sys.argv[3:] or spec.name in sys.argv[3:]:
                make(spec, out, Path(scratch))


if __name__ == "__main__":
    main()
