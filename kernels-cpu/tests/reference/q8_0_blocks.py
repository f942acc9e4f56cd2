"""Writes tests/fixtures/q8_0_blocks.bin: 96 blocks of 32 f32, then the same blocks as gguf-py quantizes them to q8_0.

pip install gguf==0.19.0 && python tests/reference/q8_0_blocks.py
"""

from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, quants

random = np.random.default_rng(8)
blocks = random.standard_normal((96, 32)).astype(np.float32)
blocks[0] = 0
blocks[1] = -0.0
blocks[2] = np.arange(-16, 16) + 0.5  # with a step of one below, every element is a tie
blocks[2, 0] = 127
blocks[3] = -blocks[2]
blocks[4] *= np.float32(1e-6)  # the step is a subnormal f16
blocks[5] *= np.float32(1e-12)  # the step is lost
blocks[6] *= np.float32(1e4)
blocks[7, 5] = 1e6
blocks[8:16] = np.round(blocks[8:16] * 8) / 8  # equal and opposite extremes
out = Path(__file__).parent.parent / "fixtures" / "q8_0_blocks.bin"
out.write_bytes(blocks.tobytes() + quants.quantize(blocks, GGMLQuantizationType.Q8_0).tobytes())
