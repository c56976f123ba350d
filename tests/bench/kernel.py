"""Microseconds a row: the compiled kernel beside its numpy twin and the machine's own limit.

    python -m tests.bench.kernel [--quick]

Learning with every feature on (noise head, robust, drift) in a session, CPU time of the thread, the
best of a few runs, the cost of a call without rows taken off; the three structures of a network
take turns, so their ratio (`of neuron`) is taken under one load. The limit is a bare pass over the
covariances, compiled on the spot with the machine's own instructions: each entry read and written
once with three multiply-adds. `plain` has the features off; the last column is what they cost.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from kbnn import Config, init
from kbnn.array_types import FloatArray
from kbnn.core import kernel as kernel_module
from kbnn.core import reference
from kbnn.core.config import Covariance
from kbnn.core.layout import layout_of

SHAPES = ((4, (50,)), (8, (50,)), (13, (50,)), (90, (50,)), (13, (50, 50)), (2, (10, 10)))
STRUCTURES: tuple[Covariance, ...] = ("neuron", "group", "full")
LOOKS = 15
SECONDS_A_LOOK = 0.05
KERNEL_ROWS = 4000
TWIN_ROWS = 60

Timed = Callable[[int], None]


def timed(run: Timed, count: int) -> float:
    """CPU seconds of this thread."""
    start = time.thread_time()
    run(count)
    return time.thread_time() - start


def micros(runs: Sequence[Timed], most: int, looks: int = LOOKS) -> list[float]:
    """The best time of a row of each run, net of no rows; turn by turn, under the same load."""
    counts, empty = [], []
    for run in runs:
        run(1)
        empty.append(min(timed(run, 0) for _ in range(3)))
        once = max(timed(run, 2) - empty[-1], 1e-6) / 2
        look = SECONDS_A_LOOK + 4 * empty[-1]  # what is taken off must not be most of it
        counts.append(int(min(most, max(2, look / once))))
    best = [np.inf] * len(runs)
    for _ in range(looks):
        for i, run in enumerate(runs):
            best[i] = min(best[i], (timed(run, counts[i]) - empty[i]) / counts[i])
    return [1e6 * seconds for seconds in best]


def stream(config: Config, count: int) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((count, config.inputs))
    return x, np.tanh(x[:, :1]) + 0.1 * rng.standard_normal((count, 1))


def kernel_run(config: Config) -> Timed:
    x, y = stream(config, KERNEL_ROWS)
    session = kernel_module.open_session(init(config, 1))
    return lambda n: void(session.learn(x[:n], y[:n]))


def twin_run(config: Config) -> Timed:
    x, y = stream(config, TWIN_ROWS)
    state = init(config, 1)
    return lambda n: void(reference.learn_arrays(state, x[:n], y[:n]))


def void(_: object) -> None:
    return None


class Limit:
    """The bare pass of limit.c."""

    def __init__(self) -> None:
        compiler = shutil.which("cc")
        self._pass = None
        if compiler is None:
            return
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "limit.so"
            subprocess.run(
                [
                    compiler,
                    "-O3",
                    "-march=native",
                    "-shared",
                    "-fPIC",
                    "-o",
                    library,
                    Path(__file__).with_name("limit.c"),
                ],
                check=True,
            )
            self._pass = ctypes.CDLL(str(library)).limit_pass

    def run(self, entries: int) -> Timed | None:
        """Passes over so many doubles; None without a compiler."""
        if self._pass is None:
            return None
        room, u = np.ones(max(entries, 64) + 8), np.full(8, 1e-9)
        memory = room[-room.ctypes.data // 8 % 8 :]  # vectors want multiples of 64 bytes
        call = self._pass

        def run(count: int) -> None:
            call(
                ctypes.c_void_p(memory.ctypes.data),
                ctypes.c_long(len(memory)),
                ctypes.c_void_p(u.ctypes.data),
                ctypes.c_long(count),
            )

        return run


def entries(config: Config) -> int:
    """Covariance entries that a row has to read and write."""
    head = config.widths[-2] + 1
    return layout_of(config).block_offsets[-1] + (head * (head + 1) // 2 if config.has_head else 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="13 x 50 alone")
    shapes = SHAPES[2:3] if parser.parse_args().quick else SHAPES
    limit = Limit()
    print(f"engine: {kernel_module.describe_engine()}\n")
    print(
        f"{'network':>12} {'blocks':>7} {'kernel us':>10} {'of neuron':>9} {'twin us':>9} "
        f"{'ratio':>6} {'limit us':>9} {'share':>6} {'plain us':>9} {'features':>9}"
    )
    for inputs, hidden in shapes:
        shape = f"{inputs} x {','.join(map(str, hidden))}"
        on = [Config(inputs=inputs, hidden=hidden, covariance=kind) for kind in STRUCTURES]
        off = [replace(config, noise_head=False, robust=False, drift=False) for config in on]
        bare = [limit.run(entries(config)) for config in on]
        runs = [kernel_run(config) for config in on + off] + [run for run in bare if run]
        kernel, plain, floor = np.resize(micros(runs, KERNEL_ROWS) + [np.nan] * 3, (3, 3))
        twin = micros([twin_run(config) for config in on], TWIN_ROWS, looks=2)
        for i, config in enumerate(on):
            print(
                f"{shape:>12} {config.covariance:>7} {kernel[i]:10.1f} "
                f"{kernel[i] / kernel[0]:9.2f} {twin[i]:9.0f} {twin[i] / kernel[i]:6.1f} "
                f"{floor[i]:9.1f} {floor[i] / kernel[i]:6.0%} {plain[i]:9.1f} "
                f"{kernel[i] / plain[i] - 1.0:9.0%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
