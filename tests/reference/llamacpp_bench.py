#!/usr/bin/env python3
"""Speed of llama.cpp on a file, to hold `ember bench` against: prefill and decode tokens/s, median and range.

usage: llamacpp_bench.py MODEL.gguf [-p 512] [-n 128] [-r 5] [--threads 2]
"""

import argparse
import random
import statistics

import xllamacpp

from llamacpp_server import LlamaCpp


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("-p", type=int, default=512, help="prompt tokens")
    parser.add_argument("-n", type=int, default=128, help="generated tokens")
    parser.add_argument("-r", type=int, default=5, help="repetitions")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    llama = LlamaCpp(options.model, threads=options.threads, n_ctx=max(options.p + 8, options.n + 8))
    alphabet = llama.tokenize("the quick brown fox jumps over the lazy dog and runs away from it")
    pick = random.Random(0)
    greedy = {"samplers": ["top_k"], "top_k": 1, "ignore_eos": True}
    prefill, decode = [], []
    for _ in range(options.r):
        prompt = [pick.choice(alphabet) for _ in range(options.p)]
        prefill.append(llama.complete(prompt, 1, **greedy)["timings"]["prompt_per_second"])
        timings = llama.complete(prompt[:1], options.n, **greedy)["timings"]
        # The first token comes out of the prompt's own evaluation.
        decode.append((options.n - 1) / timings["predicted_ms"] * 1000)
    print(xllamacpp.get_system_info())
    for name, values in ((f"prefill {options.p}", prefill), (f"decode {options.n}", decode)):
        print(f"{name}: {statistics.median(values):.2f} tokens/s ({min(values):.2f} to {max(values):.2f}, {options.threads} threads)")


if __name__ == "__main__":
    main()
