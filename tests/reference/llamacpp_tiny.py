#!/usr/bin/env python3
"""Compares llama.cpp with the reference logits of tests/fixtures/models: every file, the last position of several
prefixes and of the greedy continuation. llama.cpp runs with an f32 KV cache and without flash attention.

usage: llamacpp_tiny.py [MODELS_DIR]
"""

import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from llamacpp_server import LlamaCpp


def log_softmax(x):
    x = x.astype(np.float64)
    return x - np.log(np.exp(x - x.max()).sum()) - x.max()


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "fixtures/models"
    for path in sorted(root.glob("*/*.gguf")):
        suffix = "" if path.stem == "f32" else f"-{path.stem}"
        reference = load_file(path.parent / f"reference{suffix}.safetensors")
        ids, logits, greedy = reference["input_ids"].tolist(), reference["logits"], reference["greedy"].tolist()
        llama = LlamaCpp(path, kv_type="f32", flash_attention="off")
        letter = llama.tokenize("a")[-1]
        worst = 0.0
        for length in range(2, len(ids) + 1, 2):
            found = np.empty(logits.shape[1])
            tokens, values = llama.next_logprobs(ids[:length], len(found), letter)
            found[tokens] = values
            worst = max(worst, np.abs(found - log_softmax(logits[length - 1])).max())
        tokens = llama.complete(ids, len(greedy), ignore_eos=True)["tokens"]
        scale = np.abs(logits).max()
        print(f"{path.parent.name}/{path.name}: log-probabilities differ by {worst:.1e} at most "
              f"({worst / scale:.1e} of the largest logit), greedy {'equal' if tokens == greedy else f'DIFFERS {tokens} {greedy}'}")


if __name__ == "__main__":
    main()
