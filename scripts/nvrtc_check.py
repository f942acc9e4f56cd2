#!/usr/bin/env python3
"""Compiles recorded CUDA kernels to machine code and reports registers, local memory and shared memory.

    EMBER_KERNEL_TEXT_DIR=DIR cargo test -p ember-kernels-cubecl --features text --test text
    pip install --no-deps -r scripts/nvrtc-requirements.txt
    python3 scripts/nvrtc_check.py DIR

DIR holds a folder for each architecture (sm_75, sm_80, ...) with kernels.tsv: file, function, comptime arguments, units
of a cube, bytes of shared memory. Exits with 1 when a kernel does not compile, or when a kernel of the decode path
spills registers. Needs no GPU and no CUDA toolkit.
"""

import ctypes
import hashlib
import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

# Kernels over many rows at once trade registers for reuse, and may spill a few.
PREFILL = re.compile(r"tile|cmma|prefill")
USAGE = {
    "registers": re.compile(r"Used (\d+) registers"),
    "stack": re.compile(r"(\d+) bytes stack frame"),
    "stores": re.compile(r"(\d+) bytes spill stores"),
    "loads": re.compile(r"(\d+) bytes spill loads"),
}


class Nvrtc:
    """The run-time compiler of the nvidia-cuda-nvrtc wheel."""

    def __init__(self):
        import nvidia  # A namespace package of the wheels.

        roots = [Path(part) / "cu13" for part in nvidia.__path__]
        root = next((root for root in roots if (root / "lib/libnvrtc.so.13").exists()), None)
        if root is None:
            sys.exit(f"no libnvrtc.so.13 in {roots}: pip install --no-deps -r scripts/nvrtc-requirements.txt")
        # The compiler opens its built-ins by name: with them loaded, no search path is needed.
        for builtins in (root / "lib").glob("libnvrtc-builtins.so.*"):
            ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(root / "lib/libnvrtc.so.13"))
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p
        include = root / "include"
        self.includes = [f"--include-path={include}", f"--include-path={include / 'cccl'}"]

    def check(self, status, what):
        if status:
            raise RuntimeError(f"{what}: {self.library.nvrtcGetErrorString(status).decode()}")

    def compile(self, text, arch):
        """Whether the text compiles, and the log."""
        # Architecture-specific features from sm_90 on, as CubeCL asks for.
        target = f"{arch}a" if int(arch.removeprefix("sm_")) >= 90 else arch
        options = [f"--gpu-architecture={target}", *self.includes, "-lineinfo", "--ptxas-options=-v"]
        program = ctypes.c_void_p()
        status = self.library.nvrtcCreateProgram(ctypes.byref(program), text, None, 0, None, None)
        self.check(status, "nvrtcCreateProgram")
        array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        status = self.library.nvrtcCompileProgram(program, len(options), array)
        size = ctypes.c_size_t()
        self.check(self.library.nvrtcGetProgramLogSize(program, ctypes.byref(size)), "nvrtcGetProgramLogSize")
        log = ctypes.create_string_buffer(size.value)
        self.check(self.library.nvrtcGetProgramLog(program, log), "nvrtcGetProgramLog")
        self.check(self.library.nvrtcDestroyProgram(ctypes.byref(program)), "nvrtcDestroyProgram")
        return status == 0, log.value.decode()


compiler = None


def compile_one(job):
    global compiler
    compiler = compiler or Nvrtc()
    key, text, arch = job
    return key, compiler.compile(text, arch)


def recorded(folder):
    """(architecture, function, arguments, units, shared bytes, text) of every kernel."""
    for listing in sorted(folder.glob("sm_*/kernels.tsv")):
        for line in listing.read_text().splitlines():
            file, function, arguments, units, shared = line.split("\t")
            text = (listing.parent / file).read_bytes()
            yield listing.parent.name, function, arguments, int(units), int(shared), text


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    kernels = list(recorded(Path(sys.argv[1])))
    if not kernels:
        sys.exit(f"no kernels in {sys.argv[1]}")
    # The same text for the same architecture is compiled once.
    keys = [(arch, hashlib.sha256(text).digest()) for arch, *_, text in kernels]
    jobs = {key: (key, kernel[-1], kernel[0]) for key, kernel in zip(keys, kernels)}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        results = dict(pool.map(compile_one, jobs.values()))

    failures = []
    print(f"{'arch':6} {'regs':>4} {'stack':>6} {'spill':>6} {'shared':>6} {'units':>5}  kernel")
    for key, (arch, function, arguments, units, shared, _) in zip(keys, kernels):
        compiled, log = results[key]
        name = f"{function} {arguments}"
        if not compiled:
            failures.append(f"{arch} {name} does not compile:\n{log}")
            continue
        use = {what: int(found.group(1)) if (found := regex.search(log)) else 0 for what, regex in USAGE.items()}
        spilled = use["stores"] + use["loads"]
        print(f"{arch:6} {use['registers']:4} {use['stack']:6} {spilled:6} {shared:6} {units:5}  {name}")
        if spilled and not PREFILL.search(function):
            failures.append(f"{arch} {name} spills {spilled} bytes")
    print(f"{len(kernels)} kernels, {len(jobs)} compiled, {len(failures)} failures")
    for failure in failures:
        print(failure, file=sys.stderr)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
