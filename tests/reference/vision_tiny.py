#!/usr/bin/env python3
"""Makes tests/fixtures/vision: tiny seeded models with a Pixtral tower, as a text file and projector files, with the
embeddings and logits of Hugging Face transformers (f32, eager attention). See README.md beside this file.

usage: vision_tiny.py LLAMA_CPP_DIR [OUTDIR] [NAME...]
"""

import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path

os.environ["TQDM_DISABLE"] = "1"  # read when transformers imports tqdm

import transformers
from safetensors.torch import save_file

# llama.cpp's converter needs the gguf package of its own tree, before any installed one.
LLAMA_CPP = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
if not (LLAMA_CPP / "convert_hf_to_gguf.py").is_file():
    sys.exit(f"{__doc__}\n{LLAMA_CPP} has no convert_hf_to_gguf.py")
sys.path[:0] = [str(LLAMA_CPP / "gguf-py"), str(LLAMA_CPP)]

import models_gguf
import vision_gguf
from vision_hf import Spec, build, encode, reference, save
from vision_mutations import check_mutations
from vision_specs import SPECS


def make(spec: Spec, out: Path, scratch: Path):
    model = build(spec)
    target, folder = out / spec.name, scratch / spec.name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    save(model, spec, folder)
    models_gguf.convert(LLAMA_CPP, "tekken", folder, target / "text-f32.gguf")
    for kind in ("f32", "q8_0"):
        models_gguf.convert(LLAMA_CPP, "tekken", folder, target / f"mmproj-{kind}.gguf", "--mmproj", outtype=kind)
    vision_gguf.write_ollama_projector(spec, model, target / "mmproj-ollama-f32.gguf")
    if spec.text_family == "ministral3":
        vision_gguf.write_ollama_model(model, target / "text-f32.gguf", target / "ollama-f16.gguf")

    one = reference(model, spec, [spec.one])
    check_mutations(spec, model, one["pixel_values"], one["embeddings"])
    vision_gguf.load_projector(model, target / "mmproj-f32.gguf")
    again = encode(model, [one["pixel_values"]])[0]["embeddings"]
    assert again.equal(one["embeddings"]), f"{spec.name}: the F32 projector does not hold the model's weights"
    save_file(one, target / "reference.safetensors")
    save_file(reference(model, spec, list(spec.two)), target / "reference-two.safetensors")

    vision_gguf.load_projector(model, target / "mmproj-q8_0.gguf")
    quantized = reference(model, spec, [spec.one])
    save_file({n: quantized[n] for n in ("vision_hidden", "embeddings", "logits")}, target / "reference-q8_0.safetensors")
    shift = (quantized["logits"] - one["logits"]).abs().max() / one["logits"].abs().max()
    print(f"{spec.name}: embeddings deviate by {one['embeddings'].std():.2f}, logits by {one['logits'].std():.2f}; "
          f"Q8_0 moves the logits by {shift:.1e} of the largest")


def main():
    out = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).parents[1] / "fixtures/vision"
    logging.basicConfig(level=logging.ERROR)  # the converter's own call then changes nothing
    transformers.logging.disable_progress_bar()
    vision_gguf.keep_image_break()
    with tempfile.TemporaryDirectory() as scratch:
        for spec in SPECS:
            if not sys.argv[3:] or spec.name in sys.argv[3:]:
                make(spec, out, Path(scratch))


if __name__ == "__main__":
    main()
