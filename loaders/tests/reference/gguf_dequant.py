#!/usr/bin/env python3
"""Makes fixtures/gguf/dequant.gguf: blocks of every supported tensor type, and gguf-py's values for them.

For each type T the file holds the tensor `T.blocks` of that type and the F32 tensor `T.expected`.
Blocks are random bytes under f16 scales of every magnitude, then all-zero and all-one codes.

    pip install gguf==0.19.0 numpy && python3 gguf_dequant.py
"""

from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T, GGUFWriter
from gguf.quants import dequantize

OUT = Path(__file__).parent.parent / "fixtures" / "gguf" / "dequant.gguf"

# Where the f16 scales of a block start.
SCALES = {
    T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108],
    T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0],
}
# Finite f16 of every kind: zeros, smallest and largest subnormal, smallest and largest normal, usual sizes.
EXTREME_F16 = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x1E37, 0xA2C5], np.uint16)


def finite_f16(rng, n):
    """Random finite f16 bit patterns of usual magnitude: 2^-9 to 2^0."""
    return (rng.integers(6, 16, n) << 10 | rng.integers(0, 1024, n) | rng.integers(0, 2, n) << 15).astype(np.uint16)


def quantized_blocks(rng, ty):
    block_len, block_bytes = GGML_QUANT_SIZES[ty]
    n_random = 4 if block_len == 256 else 24
    n = n_random + 2
    blocks = rng.integers(0, 256, (n, block_bytes), np.uint8)
    blocks[n_random], blocks[n_random + 1] = 0x00, 0xFF
    for k, at in enumerate(SCALES[ty]):
        scales = finite_f16(rng, n)
        # Every extreme lands in some block; shifted for the second scale, so that pairs differ.
        extremes = np.roll(EXTREME_F16, 4 * k)[: n_random - 1] if block_len == 32 else np.roll(
            EXTREME_F16[[1, 3, 5]], k)
        scales[: len(extremes)] = extremes
        blocks[:, at : at + 2] = scales.view(np.uint8).reshape(n, 2)
    return blocks.reshape(1, -1)


def plain_values(rng, ty):
    if ty == T.F32:
        special = np.array([0, 0x80000000, 1, 0x807FFFFF, 0x00800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000], np.uint32)
        return np.concatenate([special, rng.standard_normal(56, np.float32).view(np.uint32)]).view(np.float32)
    if ty == T.F16:
        bits = np.concatenate([EXTREME_F16, [0x7C00, 0xFC00], np.arange(0, 0x7C00, 61), np.arange(0x8000, 0xFC00, 61)])
        return bits.astype(np.uint16).view(np.float16)
    bits = np.concatenate([[0, 0x8000, 1, 0x807F, 0x0080, 0x7F7F, 0x7F80, 0xFF80], np.arange(0, 0x7F80, 61)])
    return bits.astype(np.uint16).view(np.uint8)


def main():
    rng = np.random.default_rng(20)
    writer = GGUFWriter(OUT, "dequant-fixture")
    for ty in [T.F32, T.F16, T.BF16, *SCALES]:
        blocks = quantized_blocks(rng, ty) if ty in SCALES else plain_values(rng, ty)
        expected = dequantize(blocks, ty).reshape(-1).astype(np.float32)
        assert not np.isnan(expected).any()
        if ty == T.BF16 or ty in SCALES:
            writer.add_tensor(f"{ty.name}.blocks", blocks.reshape(-1), raw_dtype=ty)
        else:
            writer.add_tensor(f"{ty.name}.blocks", blocks)
        writer.add_tensor(f"{ty.name}.expected", expected)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
