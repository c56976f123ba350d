"""Cost of contributions: milliseconds a row, 8 inputs (exact) and 50 (sampled), on all cores.

    python -m tests.bench.explaining

Exits with 1 if one network or the default ensemble misses a limit: 5 ms exact, 20 ms sampled at a
standard error of 1 % (root mean square over the columns, relative to the sum of the sizes of a
row's contributions). The processor time, of all cores together, is printed beside it.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.model.explain import explain_rows
from tests.bench.data import block, trained

LIMITS_MS = {8: 5.0, 50: 20.0}
MAX_ERROR = 0.01
ROWS = 40


def made_rows(inputs: int, rows: int = 2000) -> tuple[FloatArray, FloatArray]:
    """Correlated inputs, and a target with interactions of two and three of them."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, inputs))
    x[:, 1] += 0.7 * x[:, 0]
    x[:, 7] -= 0.5 * x[:, 2]
    y = np.tanh(x[:, 0] * x[:, 1]) + x[:, 2] + 0.3 * x[:, 3] * x[:, 4] * x[:, 5]
    return x, y + 0.1 * rng.standard_normal(rows)


def measure(inputs: int, **settings: object) -> tuple[float, float, dict[str, float]]:
    """Return milliseconds a row, of processor time too, and the mean error of each quantity."""
    x, y = made_rows(inputs)
    model = trained(x, y, **settings)  # type: ignore[arg-type]  # options of several types
    rows = block(x[:ROWS], y[:ROWS])
    explain_rows(model, rows)
    times = []
    for _ in range(5):
        start = time.perf_counter(), time.process_time()
        found = explain_rows(model, rows)
        took = time.perf_counter() - start[0], time.process_time() - start[1]
        times.append([1e3 * seconds / ROWS for seconds in took])
    sizes = np.sum(np.abs(found.contributions), axis=2)
    error = np.mean(np.sqrt(np.mean(found.errors**2, axis=2)) / sizes, axis=0)
    wall, processor = np.min(times, axis=0).tolist()
    return wall, processor, dict(zip(found.quantities, error.tolist(), strict=True))


def main() -> int:
    """Measure one network and the default ensemble; print one line each."""
    missed = 0
    for inputs, limit in LIMITS_MS.items():
        for name, settings in (("one network", {"hidden": (50,)}), ("ensemble", {})):
            wall, processor, errors = measure(inputs, **settings)
            good = wall <= limit and all(error <= MAX_ERROR for error in errors.values())
            missed += not good
            shown = ", ".join(f"{key} {100.0 * error:.2f} %" for key, error in errors.items())
            mark = "ok  " if good else "MISS"
            cost = f"{wall:.2f} ms a row ({processor:.2f} of processor time)"
            print(f"{mark} {inputs} inputs, {name}: {cost}; error: {shown}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
