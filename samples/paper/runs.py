"""Run many cases in two processes, remember every result, go on where a run was broken off."""

import ast
import functools
import hashlib
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import kbnn
from samples import make
from samples.paper import common, data, learners
from samples.paper.options import Options

Case = Mapping[str, str | int | float | list[int]]
Result = dict[str, list[float]]
Work = Callable[[Case, Options], Result]


def gather(
    work: Work, cases: Sequence[Case], options: Options, title: str, processes: int | None = None
) -> list[Result]:
    """The result of every case, in order; only those not yet in the results file are run."""
    store = options.out / "results.jsonl"
    done = _read(store)
    keys = [_key(work, case) for case in cases]
    open_cases = {key: case for key, case in zip(keys, cases, strict=True) if key not in done}
    if open_cases:
        count = options.processes if processes is None else processes
        with store.open("a", encoding="utf-8") as file, _progress() as progress:
            task = progress.add_task(title, total=len(open_cases))
            for key, result in _run(work, open_cases, options, count):
                done[key] = result
                file.write(json.dumps({"key": key, "case": open_cases[key], "result": result}))
                file.write("\n")
                file.flush()
                progress.advance(task)
    return [done[key] for key in keys]


def _run(
    work: Work, cases: Mapping[str, Case], options: Options, processes: int
) -> Iterator[tuple[str, Result]]:
    """Yield results as they come, each from a process of its own kind; 0 means this process."""
    if processes == 0:
        for key, case in cases.items():
            yield key, work(case, options)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        pending = {pool.submit(work, case, options): key for key, case in cases.items()}
        for future in as_completed(pending):
            yield pending[future], future.result()


def _progress() -> Progress:
    shown = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*shown, TimeRemainingColumn(), console=Console(stderr=True))


def _read(store: Path) -> dict[str, Result]:
    """Results by key; a last line cut short by a kill is removed from the file first."""
    if not store.is_file():
        return {}
    content = store.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        store.write_bytes(whole)
    entries = (json.loads(line) for line in whole.splitlines())
    return {entry["key"]: entry["result"] for entry in entries}


def _key(work: Work, case: Case) -> str:
    """What a result depends on: the work, the case, and the program that did it."""
    text = json.dumps([work.__name__, _program(work.__module__), case], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@functools.cache
def _program(module: str) -> str:
    """A digest of what a result comes from: kbnn's arithmetic and the work itself."""
    own = (make, common, data, learners, sys.modules[module])
    digest = hashlib.sha256()
    for path in [*_arithmetic(), *(Path(str(one.__file__)) for one in own)]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _arithmetic() -> list[Path]:
    """The sources a model leads to, and those of the kernel: readers and tables do not count.

    A change of a reader or of a message leaves every number as it was.
    """
    folder = Path(kbnn.__file__).parent
    found: set[Path] = set()
    pending = [folder / "core" / "kernel.py", folder / "model" / "model.py"]
    while pending:
        path = pending.pop()
        if path in found or not path.is_file():
            continue
        found.add(path)
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                own = [folder.parent / name.replace(".", "/") for name in names if "kbnn" in name]
                pending += [
                    path for one in own for path in (one.with_suffix(".py"), one / "__init__.py")
                ]
    kernel = [p for p in folder.rglob("*") if p.suffix in {".pyx", ".h"} or p.parent.name == "csrc"]
    return sorted(found.union(path for path in kernel if path.is_file()))
