"""Made fleets: devices that share a shape and have offsets and slopes of their own."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from kbnn.array_types import FloatArray, IntArray


def made(devices: int, rows: int, seed: int = 0) -> tuple[IntArray, FloatArray, FloatArray]:
    """(device, x, y) of rows each; half of the devices come first in the second half."""
    draw = np.random.default_rng(seed)
    offset, slope = 2.0 * draw.normal(size=devices), 0.7 * draw.normal(size=devices)
    n = devices * rows
    early = draw.integers(0, devices // 2, n // 2)
    device = np.concatenate([early, draw.integers(0, devices, n - n // 2)])
    x = draw.uniform(-2.0, 2.0, size=(n, 2))
    y = 1.5 * np.sin(2.0 * x[:, 0]) + 0.5 * x[:, 1] ** 2
    y += offset[device] + slope[device] * x[:, 0] + 0.2 * draw.normal(size=n)
    return device, x, y


def write(path: Path, device: IntArray, x: FloatArray, y: FloatArray) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["device", "a", "b", "y"])
        for d, (a, b), t in zip(device.tolist(), x.tolist(), y.tolist(), strict=True):
            out.writerow([f"d{d}", f"{a:.5f}", f"{b:.5f}", f"{t:.5f}"])
    return path
