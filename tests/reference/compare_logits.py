#!/usr/bin/env python3
"""Compares logits with a golden of llamacpp_teacher.py.

usage: compare_logits.py GOLDEN.safetensors NAME=LOGITS.safetensors...
       compare_logits.py GOLDEN.safetensors --tokens NAME

NAME is a prompt of the golden. LOGITS holds `tokens` i64 [n] and `logits` f32 [n, vocab] of the prompt followed by the
golden's tokens; --tokens prints that list for `ember logits --tokens`. Needs numpy and safetensors.

For each prompt and for all together: the share of positions with the same likeliest token; the mean divergence
KL(golden || ours) over the golden's 64 tokens and, as one more outcome, all the others; and for each position that
disagrees, how far apart our logits of the two tokens are, and llama.cpp's.
"""

import sys

import numpy as np
from safetensors.numpy import load_file


def log_softmax(rows):
    rows = rows.astype(np.float64)
    rows = rows - rows.max(axis=1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))


def forced_tokens(golden, name):
    # The last generated token predicts nothing that the golden knows.
    return np.concatenate((golden[f"{name}.prompt"], golden[f"{name}.generated"][:-1]))


def divergence(expected, found):
    """KL over the listed tokens and the remainder; both arguments are log-probabilities [positions, top]."""
    p, q = np.exp(expected), np.exp(found)
    rest_p = np.clip(1 - p.sum(axis=1), 0, None)
    rest_q = np.clip(1 - q.sum(axis=1), 1e-12, None)
    rest = np.where(rest_p > 1e-9, rest_p * np.log(np.maximum(rest_p, 1e-12) / rest_q), 0)
    return (p * (expected - found)).sum(axis=1) + rest


def compare(golden, name, path):
    ours = load_file(path)
    tokens = forced_tokens(golden, name)
    if not np.array_equal(ours["tokens"][: len(tokens)], tokens):
        sys.exit(f"{path}: its tokens are not those of {name}")
    start = len(golden[f"{name}.prompt"]) - 1
    ids, expected = golden[f"{name}.top_ids"], golden[f"{name}.top_logprobs"].astype(np.float64)
    logits = ours["logits"][start : start + len(ids)]
    best, wanted = logits.argmax(axis=1), ids[:, 0]
    kl = divergence(expected, np.take_along_axis(log_softmax(logits), ids.astype(np.int64), axis=1))
    gaps = []
    for row in np.nonzero(best != wanted)[0]:
        ours_gap = float(logits[row, best[row]] - logits[row, wanted[row]])
        theirs = np.nonzero(ids[row] == best[row])[0]
        theirs_gap = float(expected[row, 0] - expected[row, theirs[0]]) if len(theirs) else float("inf")
        gaps.append(max(ours_gap, theirs_gap))
        print(f"  {name} position {row}: ours {best[row]}, llama.cpp {wanted[row]}; apart by {ours_gap:.3f} here, {theirs_gap:.3f} there")
    print(f"{name}: {np.mean(best == wanted):.1%} of {len(ids)} equal, mean KL {kl.mean():.5f}, largest {kl.max():.4f}")
    return best == wanted, kl, gaps


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    golden = load_file(sys.argv[1])
    if sys.argv[2] == "--tokens":
        print(",".join(map(str, forced_tokens(golden, sys.argv[3]))))
        return
    results = [compare(golden, *argument.split("=", 1)) for argument in sys.argv[2:]]
    equal = np.concatenate([r[0] for r in results])
    kl = np.concatenate([r[1] for r in results])
    gaps = [gap for r in results for gap in r[2]]
    print(f"all: {equal.mean():.1%} of {len(equal)} equal, widest gap of a difference {max(gaps, default=0):.3f}, mean KL {kl.mean():.5f}")


if __name__ == "__main__":
    main()
