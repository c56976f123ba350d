"""The options all experiments share."""

import argparse
import os
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent


class Options(NamedTuple):
    """Where the data is, where results go, and how much to run."""

    data: Path | None = None
    out: Path = HERE / "out"
    quick: bool = False
    seeds: int = 10
    processes: int = 2


def parse(description: str | None, arguments: list[str] | None = None) -> Options:
    """Read the command line of an experiment."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="folder of the UCI files: boston.csv and so on"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", default=HERE / "out", help="where results go"
    )
    parser.add_argument("--quick", action="store_true", help="fewer seeds and shorter runs")
    parser.add_argument("--seeds", type=int, metavar="N", help="random splits (10; quick: 2)")
    parser.add_argument("--processes", type=int, metavar="N", default=2, help="(2)")
    parser.add_argument("--fresh", action="store_true", help="forget results of earlier runs")
    given = parser.parse_args(arguments)
    if given.data is not None and not given.data.is_dir():
        parser.error(f"--data: there is no folder {given.data}")
    if min(given.processes, given.seeds or 1) < 1:
        parser.error("--seeds and --processes must be at least 1")
    given.out.mkdir(parents=True, exist_ok=True)
    if given.fresh:
        for kept in given.out.glob("results*.jsonl"):
            kept.unlink()
    # One thread per process: two processes with threads of their own would only wait on each other.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    seeds = given.seeds or (2 if given.quick else 10)
    return Options(given.data, given.out, given.quick, seeds, given.processes)
