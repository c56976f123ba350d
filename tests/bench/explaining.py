"""Cost of contributions: milliseconds of processor time a row, 8 inputs (exact) and 50 (sampled).

    python -m tests.bench.explaining

Exits with 1 if one network misses a limit: 5 ms exact, 20 ms sampled at a standard error of 1 %
(root mean square over the columns, relative to the sum of the sizes of a row's contributions). The
default ensemble, whose cost is that of all its networks, must keep to the error.
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


def measure(inputs: int, **settings: object) -> tuple[float, dict[str, float]]:
    """Return milliseconds a row and the mean relative error of each quantity."""
    x, y = made_rows(inputs)
    model = trained(x, y, **settings)  # type: ignore[arg-type]  # options of several types
    rows = block(x[:ROWS], y[:ROWS])
    explain_rows(model, rows)
    times = []
    for _ in range(3):
        start = time.process_time()
        found = explain_rows(model, rows)
        times.append(1e3 * (time.process_time() - start) / ROWS)
    sizes = np.sum(np.abs(found.contributions), axis=2)
    error = np.mean(np.sqrt(np.mean(found.errors**2, axis=2)) / sizes, axis=0)
    return min(times), dict(zip(found.quantities, error.tolist(), strict=True))


def main() -> int:
    """Measure one network, which has limits, and the default ensemble; print one line each."""
    missed = 0
    for inputs, limit in LIMITS_MS.items():
        for name, settings in (("one network", {"hidden": (50,)}), ("ensemble", {})):
            cost, errors = measure(inputs, **settings)
            exact = all(error <= MAX_ERROR for error in errors.values())
            good = exact and (cost <= limit or name == "ensemble")
            missed += not good
            shown = ", ".join(f"{key} {100.0 * error:.2f} %" for key, error in errors.items())
            mark = "ok  " if good else "MISS"
            print(f"{mark} {inputs} inputs, {name}: {cost:.2f} ms a row; error: {shown}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
