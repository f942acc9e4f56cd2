#!/usr/bin/env python3
"""Time and peak memory of llama.cpp's vision path on one image, to hold `ember vision` against: the encoding alone,
without loading and resizing; the median of the repetitions after a first one that is not counted.

usage: vision_llamacpp_bench.py LLAMA_CPP_DIR BUILD_DIR MMPROJ IMAGE [-r 5] [--threads 2] [--no-flash]
"""

import argparse
import statistics
from pathlib import Path

import vision_mtmd


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("llama_cpp", type=Path)
    parser.add_argument("build", type=Path)
    parser.add_argument("mmproj", type=Path)
    parser.add_argument("image", type=Path)
    parser.add_argument("-r", type=int, default=5, help="repetitions")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-flash", action="store_true", help="attention without the flash kernel that is mtmd's default")
    options = parser.parse_args()
    program = vision_mtmd.compile_program(options.llama_cpp.resolve(), options.build.resolve())
    found = vision_mtmd.encode(
        program, options.mmproj, options.image, options.threads, options.r + 1, flash=not options.no_flash
    )
    _, height, width = found.pixels.shape
    times, cpu = found.milliseconds[1:], found.cpu_milliseconds[1:]
    print(f"{width} x {height} pixels, {options.threads} threads: encode {statistics.median(times):.0f} ms "
          f"({min(times):.0f} to {max(times):.0f}), CPU time {statistics.median(cpu):.0f} ms, "
          f"peak resident memory {found.peak_kib / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
