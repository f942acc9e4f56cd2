#!/usr/bin/env python3
"""Adds llama.cpp's embeddings to tests/fixtures/vision, on an image whose size no rule changes, and compares them with
transformers' on the same pixels. See README.md beside this file.

usage: vision_llamacpp.py LLAMA_CPP_DIR BUILD_DIR [VISION_DIR]
"""

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.numpy import save_file

import vision_hf
import vision_mtmd
from vision_mutations import cosines
from vision_specs import SPECS

CASES = [("gelu-2", 224), ("gelu-2", 448), ("silu-2", 224), ("silu-2", 448), ("silu-1", 512)]


def write_image(path: Path, side: int):
    """Slanted ramps, a different one in each channel, which stay small as a PNG."""
    y, x = np.mgrid[:side, :side]
    channels = (3 * x + y // 8 * 5, 2 * y + x // 16 * 11, x + y)
    Image.fromarray(np.stack([c % 256 for c in channels], axis=-1).astype(np.uint8)).save(path, optimize=True)


def cells(values: np.ndarray, side: int, cell: int, width: int) -> np.ndarray:
    """The embeddings [rows x columns, width] without the row of [IMG_BREAK] that ends each row but the last."""
    grid = side // cell
    tokens = values.reshape(-1, width)
    assert len(tokens) == grid * grid + grid - 1, "the size was changed"
    padded = np.concatenate((tokens, tokens[-1:]))
    return padded.reshape(grid, grid + 1, width)[:, :grid].reshape(-1, width).copy()


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    root = Path(sys.argv[3]) if len(sys.argv) > 3 else Path(__file__).parents[1] / "fixtures/vision"
    program = vision_mtmd.compile_program(*(Path(argument).resolve() for argument in sys.argv[1:3]))
    results: dict[str, dict[str, np.ndarray]] = {}
    for name, side in CASES:
        spec = next(spec for spec in SPECS if spec.name == name)
        image = root / f"ramps-{side}.png"
        write_image(image, side)
        found = vision_mtmd.encode(program, root / name / "mmproj-f32.gguf", image)
        mean, std = (np.array(values, np.float32)[:, None, None] for values in (spec.mean, spec.std))
        expected = (np.asarray(Image.open(image), np.float32).transpose(2, 0, 1) / 255 - mean) / std
        assert np.abs(found.pixels - expected).max() < 1e-6, "llama.cpp did not take the pixels as they are"

        embeddings = cells(found.embeddings, side, spec.vision["patch_size"] * spec.merge, spec.text["hidden_size"])
        results.setdefault(name, {})[f"embeddings.{side}"] = embeddings
        ours = vision_hf.encode(vision_hf.build(spec), [torch.from_numpy(found.pixels.copy())])[0]["embeddings"]
        cosine = cosines(torch.from_numpy(embeddings), ours)
        print(f"{name}, {side} x {side}: {len(embeddings)} cells, cosine with transformers {cosine.min():.7f} at least")
    for name, tensors in results.items():
        save_file(tensors, root / name / "llamacpp.safetensors")


if __name__ == "__main__":
    main()
