"""Every experiment of the paper, one after the other.

With --quick in a few minutes with two random splits; without it with ten. Results are kept: a run
that was broken off goes on where it was. Without --data DIR the UCI experiments are left out.
Run: python -m samples.paper.all --quick --data DIR
"""

import importlib
import os
import platform
import time
from pathlib import Path

import numpy as np

from samples.paper import report
from samples.paper.options import Options, parse

FREE = ("cubic", "moons", "unknown", "rotating")
UCI = ("timing", "uci", "silences", "epochs", "architecture")


def main(options: Options) -> None:
    """Run the experiments and say how long each took."""
    report.show(machine(), options)
    spent = []
    for name in FREE if options.data is None else (*FREE, *UCI):
        start = time.perf_counter()
        importlib.import_module(f"samples.paper.{name}").main(options)
        spent.append([name, f"{time.perf_counter() - start:.1f}"])
    if options.data is None:
        spent += [[name, "left out: no --data DIR"] for name in UCI]
    report.show(
        report.Table(
            "seconds",
            "Seconds spent",
            ("experiment", "seconds"),
            spent,
            "Results kept from an earlier run cost nothing.",
        ),
        options,
    )


def machine() -> report.Table:
    """What the numbers were measured on."""
    rows = [
        ["processor", _processor()],
        ["cores", str(os.cpu_count())],
        ["system", f"{platform.system()} {platform.machine()}"],
        ["Python", platform.python_version()],
        ["numpy", np.__version__],
    ]
    return report.Table("machine", "Machine", ("", "what"), rows)


def _processor() -> str:
    """The processor's own name where the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


if __name__ == "__main__":
    main(parse(__doc__))
