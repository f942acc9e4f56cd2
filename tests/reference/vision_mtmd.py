"""llama.cpp's vision path, built from its source (README.md beside this file) and run as a program of its own."""

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image


@dataclass
class Encoded:
    pixels: np.ndarray  # [3, height, width], normalised
    embeddings: np.ndarray  # [tokens, width], with a row of [IMG_BREAK] after each row of cells but the last
    milliseconds: list[float]
    cpu_milliseconds: list[float]  # of all threads together
    peak_kib: int


def compile_program(llama_cpp: Path, build: Path) -> Path:
    program, source = build / "vision_llamacpp", Path(__file__).with_name("vision_llamacpp.cpp")
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        folders = [llama_cpp / part for part in ("tools/mtmd", "ggml/include", "include", "common", "vendor")]
        subprocess.run([
            "g++", "-O2", "-std=c++17", *(f"-I{folder}" for folder in folders), str(source), "-o", str(program),
            f"-L{build / 'bin'}", f"-Wl,-rpath,{(build / 'bin').resolve()}", "-lmtmd", "-lllama", "-lggml", "-lggml-base",
        ], check=True)
    return program


def encode(program: Path, mmproj: Path, image: Path, threads: int = 1, repetitions: int = 1, flash: bool = False) -> Encoded:
    """The image's pixels and embeddings. Without flash attention everything is f32 except the table behind GELU."""
    rgb = np.asarray(Image.open(image).convert("RGB"))
    with tempfile.TemporaryDirectory() as scratch:
        raw, prefix, log = (Path(scratch, name) for name in ("rgb", "out", "log"))
        raw.write_bytes(rgb.tobytes())
        arguments = [mmproj, rgb.shape[1], rgb.shape[0], raw, prefix, threads, repetitions, int(flash)]
        with log.open("w") as messages:
            process = subprocess.Popen(
                [str(a) for a in (program, *arguments)], stdout=subprocess.PIPE, stderr=messages, text=True
            )
            lines = process.stdout.read().splitlines()
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise RuntimeError(f"{program} failed on {mmproj}:\n{log.read_text()}")
        width, height = (int(n) for n in lines[0].split()[1:])
        pixels = np.fromfile(f"{prefix}.pixels", np.float32).reshape(height, width, 3)
        embeddings = np.fromfile(f"{prefix}.embeddings", np.float32)
    times = [[float(line.split()[column]) for line in lines[1:]] for column in (1, 2)]
    return Encoded(pixels.transpose(2, 0, 1), embeddings, *times, usage.ru_maxrss)
