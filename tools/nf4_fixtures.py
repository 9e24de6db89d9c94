"""Writes `tests/fixtures/io/nf4.npz`: rows of floats, and what bitsandbytes makes of them in NF4 on the CPU.

    pip install torch numpy bitsandbytes
    python tools/nf4_fixtures.py

For each row of `values` the file has the bytes of its blocks in our order, the largest absolute value and then two elements
in each byte, as `blocks`; and the elements that bitsandbytes reads back, as `dequantized`.
"""

from pathlib import Path

import bitsandbytes.functional as functional
import numpy as np
import torch

BLOCK = 64
ROWS, COLUMNS = 6, 256


def main():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((ROWS, COLUMNS), "f4")
    # Large and small blocks, a block of zeros, and one with a single large element.
    values[1] *= 1e4
    values[2] *= 1e-4
    values[3, :BLOCK] = 0
    values[3, BLOCK] = 100
    # The table itself, times a power of two, which makes the codes unambiguous.
    values[4, :BLOCK] = 0.25 * np.tile(functional.get_4bit_type("nf4", device="cpu").numpy(), 4)
    codes, state = functional.quantize_4bit(torch.from_numpy(values), blocksize=BLOCK, quant_type="nf4")
    blocks = np.concatenate(
        [state.absmax.numpy().astype("<f4").view("u1").reshape(-1, 4), codes.numpy().reshape(-1, BLOCK // 2)], 1
    ).reshape(ROWS, -1)
    dequantized = functional.dequantize_4bit(codes, state).numpy()
    path = Path(__file__).parent.parent / "tests/fixtures/io/nf4.npz"
    np.savez_compressed(path, values=values, blocks=blocks, dequantized=dequantized)


if __name__ == "__main__":
    main()
