"""A fleet in the workers of a Dask cluster: the same to the bit, whatever becomes of a worker."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from kbnn.core import kernel
from kbnn.fleet import dask_backend, fleet
from tests.commands import kbnn
from tests.fleet.test_batched_models import restless
from tests.fleet.test_fleet import models

pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.skipif(not kernel.is_compiled(), reason="the kernel is not built"),
    pytest.mark.filterwarnings("ignore"),  # of the cluster's own
]

TRAIN = ("train", "rows.csv", "--target", "y", "--key", "device", "-q")
DASK = ("--engine", "dask", "--cluster", "local:2")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    restless(tmp_path / "rows.csv", rows=1500, keys=40)
    done = kbnn(*TRAIN, "-m", "one", "--predictions", "one.csv")
    assert done.code == 0, done.err
    return tmp_path


def figures(*words: str) -> Any:
    found = json.loads(kbnn("evaluate", *words, "rows.csv", "--json").out)
    return {name: value for name, value in found.items() if "second" not in name}


@pytest.mark.parametrize("young", [pytest.param(0, marks=pytest.mark.slow), 700])
def test_two_workers_make_what_one_process_makes(
    here: Path, young: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first row on, and after the first rows were learned here."""
    monkeypatch.setattr(fleet, "LOCAL_ROWS", young)
    words = ("-m", "two", "--predictions", "two.csv", "--open", "15")
    done = kbnn(*TRAIN, *words, *DASK)
    assert (done.code, done.err) == (0, "")
    assert models("two") == models("one")
    assert (here / "two.csv").read_bytes() == (here / "one.csv").read_bytes()
    assert figures("two", *DASK) == figures("one")
    asked = ("rows.csv", "--limit", "500")
    assert kbnn("predict", "two", *asked, *DASK).out == kbnn("predict", "one", *asked).out


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(("young", "deaths"), [(0, (60, 75)), (600, (3, 9))])
def test_a_worker_that_dies_is_replaced_and_nothing_is_lost_or_counted_twice(
    here: Path, young: int, deaths: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "LOCAL_ROWS", young)
    calls, killed = 0, list[int]()
    learn = dask_backend.RemotePartitions.learn

    def dying(self: dask_backend.RemotePartitions, *args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls in deaths:
            pids = self._cluster._client.run(os.getpid)
            killed.append(sorted(pids.values())[0])
            os.kill(killed[-1], signal.SIGKILL)
        return learn(self, *args)

    monkeypatch.setattr(dask_backend.RemotePartitions, "learn", dying)
    words = ("--predictions", "two.csv", "--checkpoint-every", "0.3")
    done = kbnn(*TRAIN, "-m", "two", *words, *DASK)
    assert (done.code, len(set(killed))) == (0, 2), done.err
    assert models("two") == models("one")
    assert (here / "two.csv").read_bytes() == (here / "one.csv").read_bytes()


@pytest.mark.slow
def test_one_model_answers_in_workers(here: Path) -> None:
    assert kbnn("train", "rows.csv", "--ignore", "device", "-m", "m.npz", "-q").code == 0
    assert figures("m.npz", *DASK) == figures("m.npz")
    asked = ("predict", "m.npz", "rows.csv")
    assert kbnn(*asked, *DASK).out == kbnn(*asked).out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--engine", "ray"), "--engine is local or dask, not 'ray'"),
        (("--engine", "dask", "--cluster", "local:x"), "local:N needs a number of workers"),
        (
            ("--engine", "dask", "--cluster", "tcp://127.0.0.1:9"),
            "cannot connect to a Dask scheduler",
        ),
    ],
)
def test_what_is_refused_is_one_sentence(
    here: Path, words: tuple[str, ...], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_backend, "CONNECT_TIMEOUT_SECONDS", 0.5)
    done = kbnn(*TRAIN, "-m", "two", *words)
    assert (done.code, done.err.count("\n")) == (2, 1), done.err
    assert why in done.err


def test_one_model_is_learned_here(here: Path) -> None:
    done = kbnn("train", "rows.csv", "-m", "m.npz", "-q", *DASK)
    assert done.code == 2
    assert "--engine dask needs a fleet in a folder: add --key and --model" in done.err
