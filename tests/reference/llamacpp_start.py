#!/usr/bin/env python3
"""The start of Ember beside llama.cpp's: one token of a prompt of one token, the file in the page cache.

The programs take turns. For each: the shortest and the median time, the least processor time (user and system), and the
most resident memory, as the table of docs/performance.md.

usage: llamacpp_start.py EMBER LLAMA_COMPLETION MODEL.gguf [-r 15] [--threads 2] [--ctx-size 8192]

LLAMA_COMPLETION is llama.cpp's program llama-completion; `-` measures Ember alone.
"""

import argparse
import os
import statistics
import subprocess
import time


def run(command):
    """Seconds, processor seconds and resident MiB of a command."""
    start = time.monotonic()
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} exits with {process.returncode}")
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("ember")
    parser.add_argument("llama")
    parser.add_argument("model")
    parser.add_argument("-r", type=int, default=15, help="runs of each")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--ctx-size", type=int, default=8192)
    options = parser.parse_args()
    common = ["-m", options.model, "--threads", str(options.threads), "--ctx-size", str(options.ctx_size)]
    programs = {"Ember": [options.ember, "run", *common, "--raw", "--max-tokens", "1", "Hello"]}
    if options.llama != "-":
        programs["llama.cpp"] = [options.llama, *common, "-no-cnv", "--no-warmup", "-n", "1", "-p", "Hello"]
    # Both read the whole file once, so that it is in the page cache.
    runs = {name: [] for name in programs}
    for command in programs.values():
        run(command)
    for _ in range(options.r):
        for name, command in programs.items():
            runs[name].append(run(command))
    print("| program | shortest | median | processor time | resident |\n|---|---|---|---|---|")
    for name, measured in runs.items():
        seconds, processor, resident = zip(*measured)
        print(
            f"| {name} | {min(seconds):.2f} s | {statistics.median(seconds):.2f} s"
            f" | {min(processor):.2f} s | {max(resident):.0f} MiB |"
        )


if __name__ == "__main__":
    main()
