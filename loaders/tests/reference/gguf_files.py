#!/usr/bin/env python3
"""Makes small files in fixtures/gguf with gguf-py's own writer: every metadata type, shards, big-endian;
and from them the seeds of the fuzzer in ../fuzz/seeds/gguf.

    pip install gguf==0.19.0 numpy && python3 gguf_files.py
"""

from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as T, GGUFEndian, GGUFValueType as V, GGUFWriter

OUT = Path(__file__).parent.parent / "fixtures" / "gguf"
SEEDS = Path(__file__).parent.parent.parent / "fuzz" / "seeds" / "gguf"


def write(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def metadata():
    """Every value type at its extremes, arrays of each, nested arrays, alignment 64, tensors of 1 to 4 dims."""
    writer = GGUFWriter(OUT / "metadata.gguf", "qwen3")
    writer.add_custom_alignment(64)
    writer.add_uint8("test.u8", 255)
    writer.add_int8("test.i8", -128)
    writer.add_uint16("test.u16", 65535)
    writer.add_int16("test.i16", -32768)
    writer.add_uint32("test.u32", 2**32 - 1)
    writer.add_int32("test.i32", -(2**31))
    writer.add_float32("test.f32", 1e-6)
    writer.add_uint64("test.u64", 2**64 - 1)
    writer.add_int64("test.i64", -(2**63))
    writer.add_float64("test.f64", 0.1)
    writer.add_bool("test.true", True)
    writer.add_bool("test.false", False)
    writer.add_string("test.string", "naïve 🦀\n")
    for ty, elements in [
        (V.UINT8, [0, 255]), (V.INT8, [-128, 127]), (V.UINT16, [0, 65535]), (V.INT16, [-32768, 32767]),
        (V.UINT32, [0, 2**32 - 1]), (V.INT32, [-(2**31), 2**31 - 1]), (V.FLOAT32, [0.5, -0.0]),
        (V.BOOL, [True, False, True]), (V.STRING, ["Ġthe", "<|im_end|>", ""]), (V.UINT64, [0, 2**64 - 1]),
        (V.INT64, [-(2**63), 2**63 - 1]), (V.FLOAT64, [0.1, -2.5]),
    ]:
        writer.add_key_value(f"test.array.{ty.name.lower()}", elements, V.ARRAY, sub_type=ty)
    writer.add_array("test.array.nested", [[1, 2], [3], ["four", "5"]])
    writer.add_tensor("one", np.arange(5, dtype=np.float32))
    writer.add_tensor("two", np.arange(6, dtype=np.float16).reshape(2, 3))
    writer.add_tensor("three", np.arange(24, dtype=np.float32).reshape(4, 3, 2))
    writer.add_tensor("four", np.arange(120, dtype=np.float16).reshape(5, 4, 3, 2))
    write(writer)
    content = bytearray((OUT / "metadata.gguf").read_bytes())
    content[4] = 2  # version 2 has the same layout; gguf-py writes only 3
    (OUT / "metadata-v2.gguf").write_bytes(content)


def shards():
    writer = GGUFWriter(OUT / "split.gguf", "llama", split_max_tensors=2)
    writer.add_block_count(7)
    for i in range(5):
        writer.add_tensor(f"blk.{i}.weight", np.full(3, i, np.float32))
    write(writer)


def types():
    """One block of each tensor type that ggml has, named after it; `block.NAME` holds its elements and bytes."""
    writer = GGUFWriter(OUT / "types.gguf", "llama")
    for ty, (elements, size) in GGML_QUANT_SIZES.items():
        writer.add_array(f"block.{ty.name}", [elements, size])
        writer.add_tensor(ty.name, np.full(size, ty.value, np.uint8), raw_dtype=ty)
    write(writer)


def big_endian():
    writer = GGUFWriter(OUT / "big-endian.gguf", "llama", endianess=GGUFEndian.BIG)
    writer.add_tensor("weight", np.ones(3, np.float32))
    write(writer)


def seeds():
    """Inputs that reach every part of the reader: the files above, and one block of each tensor type."""
    SEEDS.mkdir(parents=True, exist_ok=True)
    for name in ["metadata", "metadata-v2", "big-endian", "split-00001-of-00003"]:
        (SEEDS / name).write_bytes((OUT / f"{name}.gguf").read_bytes())
    writer = GGUFWriter(SEEDS / "types", "llama")
    rng = np.random.default_rng(3)
    for name in "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS".split():
        block = rng.integers(0, 256, GGML_QUANT_SIZES[T[name]][1], np.uint8)
        writer.add_tensor(name, block, raw_dtype=T[name])
    write(writer)
    content = (OUT / "types.gguf").read_bytes()
    (SEEDS / "foreign-types").write_bytes(content)
    # The last tensor's type becomes one that ggml does not have: its id stands before its offset.
    last = content.rindex(b"Q1_0") + len("Q1_0") + 4 + 8
    (SEEDS / "unknown-type").write_bytes(content[:last] + (99).to_bytes(4, "little") + content[last + 4 :])
    (SEEDS / "joined").write_bytes((OUT / "split-00001-of-00003.gguf").read_bytes() * 2)
    (SEEDS / "empty").write_bytes(b"")
    (SEEDS / "html").write_bytes(b"<!DOCTYPE html><html></html>")


if __name__ == "__main__":
    metadata()
    shards()
    types()
    big_endian()
    seeds()
