#!/usr/bin/env python3
"""Stores what llama.cpp finds likely, as the reference for teacher-forced comparisons on a real model: 8 prompts, the
64 tokens it likes best after each, and the 64 largest log-probabilities at each of these positions.

usage: llamacpp_teacher.py MODEL.gguf OUT.safetensors [--exact]
  --exact   f32 KV cache and no flash attention instead of llama.cpp's defaults (f16, automatic): how far two
            settings of llama.cpp are apart

Tensors, for each prompt p: p.prompt i64 [n]; p.generated i64 [64], the likeliest token that does not end generation;
p.top_ids i32 [64, 64] and p.top_logprobs f32 [64, 64], likeliest first, of the whole vocabulary's softmax before any
sampler. Row r predicts p.generated[r] from p.prompt and p.generated[..r]. The file's metadata holds the texts.
"""

import hashlib
import json
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from llamacpp_server import LlamaCpp

POSITIONS = 64
TOP = 64
# (name, whether it goes through the model's chat template, text)
PROMPTS = [
    ("raw_story", False, "Once upon a time, in a small village at the foot of the mountains, there lived an old clockmaker who"),
    ("raw_facts", False, "The history of the Roman Empire can be divided into several periods. The first of them"),
    ("raw_code", False, "def merge_sort(items):\n    \"\"\"Return a sorted copy of items.\"\"\"\n"),
    ("raw_french", False, "La ville de Paris est connue pour ses musées, ses monuments et"),
    ("chat_explain", True, "Explain in a few sentences how a refrigerator keeps food cold."),
    ("chat_code", True, "Write a Rust function that returns the n-th Fibonacci number, and explain it."),
    ("chat_german", True, "Schreibe einen kurzen Brief an einen Freund über deine letzte Reise nach Wien."),
    ("chat_chinese", True, "请用中文介绍一下长城的历史。"),
]


def continuation(llama: LlamaCpp, ids: list[int], end: set[int]):
    generated, top_ids, top_logprobs = [], [], []
    letter = llama.tokenize("a")[-1]
    for _ in range(POSITIONS):
        tokens, logprobs = llama.next_logprobs(ids + generated, TOP, letter, cache=True)
        generated.append(next(token for token in tokens if token not in end))
        top_ids.append(tokens)
        top_logprobs.append(logprobs)
    return np.array(generated, np.int64), np.array(top_ids, np.int32), np.array(top_logprobs, np.float32)


def main():
    arguments = [a for a in sys.argv[1:] if a != "--exact"]
    if len(arguments) != 2:
        sys.exit(__doc__)
    model, out = map(Path, arguments)
    settings = {"kv_type": "f32", "flash_attention": "off"} if "--exact" in sys.argv else {"kv_type": "f16", "flash_attention": "auto"}
    llama = LlamaCpp(model, **settings)
    end = llama.end_tokens()
    tensors, texts = {}, {}
    for name, chat, text in PROMPTS:
        if chat:
            text = llama.post("/apply-template", {"messages": [{"role": "user", "content": text}]})["prompt"]
        ids = llama.tokenize(text)
        generated, top_ids, top_logprobs = continuation(llama, ids, end)
        tensors |= {
            f"{name}.prompt": np.array(ids, np.int64), f"{name}.generated": generated,
            f"{name}.top_ids": top_ids, f"{name}.top_logprobs": top_logprobs,
        }
        answer = llama.post("/detokenize", {"tokens": generated.tolist()})["content"]
        texts[name] = {"prompt": text, "generated": answer}
        ended = int(np.isin(top_ids[:, 0], list(end)).sum())
        print(f"{name}: {len(ids)} prompt tokens, generation would have ended at {ended} positions: {answer[:100]!r}")
    metadata = {
        "model": model.name, "sha256": hashlib.sha256(model.read_bytes()).hexdigest(), "xllamacpp": version("xllamacpp"),
        **settings, "texts": json.dumps(texts, ensure_ascii=False),
    }
    save_file(tensors, out, metadata)


if __name__ == "__main__":
    main()
