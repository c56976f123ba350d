"""A campaign of ends: trainers killed or signalled at any moment, and started again.

The same command goes on where the last one ended; when a stream is learned at last, its model and
its predictions are, byte for byte, those of a trainer that nobody disturbed. Run with
`-m slow -n 0 tests/faults/test_kills.py`; it prints how many ends came when.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from kbnn.model.file import exists, load

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX"),
]

ROWS = 4_000
KILLS, SIGNALS = 500, 100
TRAIN = ["-m", "m.npz", "--layers", "8", "--checkpoint-every", "0.02", "--predictions", "p.csv"]
TRAIN += ["--alerts", "a.csv", "--alert-rate", "1e-2"]
WORDS = {
    "again": ["train", "rows.csv", *TRAIN],
    "resume": ["train", "rows.csv", *TRAIN, "--resume"],
    "pipe": ["train", "-", *TRAIN, "--resume"],
}
"""The same command once more, --resume, and a live pipe that begins anew each time."""
BAD = ("Traceback", "unexpected error", "Exception ignored", "generator already executing")
EARLY = "before the program's first line"
POLITE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(NamedTuple):
    """How a trainer ended, what it said, and when (or that nobody ended it)."""

    code: int
    said: str
    when: str


def feed(trainer: subprocess.Popen[bytes], data: bytes) -> None:
    """A live source: rows come in small pieces, until nobody takes them."""
    assert trainer.stdin is not None
    try:
        for at in range(0, len(data), 20_000):
            trainer.stdin.write(data[at : at + 20_000])
            trainer.stdin.flush()
            time.sleep(0.005)
        trainer.stdin.close()
    except (BrokenPipeError, ValueError):
        return


def moment(dice: random.Random, trainer: subprocess.Popen[bytes], model: Path) -> str:
    """Wait for a random moment: while libraries load, about the first row, among checkpoints.

    Some of these moments are late enough for a stream to come to its end, however busy the machine.
    """
    if dice.random() < 0.3:
        time.sleep(dice.uniform(0.0, 0.3))
        return "in the first 300 ms"
    if dice.random() < 0.4:
        time.sleep(dice.uniform(0.3, 0.9))
        return "in the first second"
    before = model.stat().st_mtime_ns if model.exists() else 0
    while trainer.poll() is None and (not model.exists() or model.stat().st_mtime_ns == before):
        time.sleep(0.002)
    time.sleep(dice.uniform(0.0, dice.choice((0.15, 0.15, 1.5))))
    return "among checkpoints"


def trained(folder: Path, words: list[str], end: Callable[[], int] | None, seed: int) -> Ended:
    """Run a trainer, and end it by a signal unless it is done before."""
    live = "-" in words
    with open(folder.parent / f"{folder.name}.err", "w+b") as talk:
        trainer = subprocess.Popen(
            [sys.executable, "-m", "kbnn_cli.startup", *words],
            cwd=folder,
            stdin=subprocess.PIPE if live else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=talk,
        )
        feeder = threading.Thread(target=feed, args=(trainer, (folder / "rows.csv").read_bytes()))
        if live:
            feeder.start()
        when = "never"
        if end is not None:
            at = moment(random.Random(seed), trainer, folder / "m.npz")
            if trainer.poll() is None:
                trainer.send_signal(end())
                when = at
        code = trainer.wait(timeout=120)
        if live:
            feeder.join()
            with suppress(BrokenPipeError):
                trainer.stdin.close()  # type: ignore[union-attr]  # it is a pipe
        talk.seek(0)
        said = talk.read().decode()
    return Ended(code, said, when)


def before_the_first_line(ended: Ended, number: int) -> bool:
    """Whether Ctrl-C met Python itself, which shows a traceback before it runs any program."""
    return number == signal.SIGINT and ended.code != 130 and "kbnn_cli/" not in ended.said


def check_end(ended: Ended, number: int) -> None:
    if "KeyboardInterrupt" in ended.said and before_the_first_line(ended, number):
        return
    assert not [word for word in BAD if word in ended.said], ended
    allowed = {0, -number} if ended.when != "never" else {0}
    if number in POLITE:  # saved first, or so early that there was nothing to save
        allowed |= {128 + number} if ended.when != "never" else set()
    assert ended.code in allowed, ended


def complete(model: Path) -> bool:
    return exists(str(model)) and bool(load(str(model)).position["complete"])


def read_outputs(folder: Path) -> list[bytes]:
    """Model, predictions and alerts."""
    return [(folder / name).read_bytes() for name in ("m.npz", "p.csv", "a.csv")]


class Campaign:
    """Streams that are learned through one end after another, until there were enough of them."""

    def __init__(self, folder: Path, numbers: list[int]) -> None:
        self.folder, self.numbers = folder, numbers
        self.counts: Counter[str] = Counter()
        self.lock = threading.Lock()
        rng = np.random.default_rng(0)
        x = rng.standard_normal((ROWS, 2))
        table = np.column_stack([x, np.sin(x[:, 0]) + 0.1 * rng.standard_normal(ROWS)])
        self.rows = folder / "rows.csv"
        np.savetxt(self.rows, table, fmt="%.4f", delimiter=",", header="a,b,y", comments="")
        self.whole = {way: self.learned_whole(way) for way in WORDS}

    def place(self, name: str) -> Path:
        made = self.folder / name
        made.mkdir()
        os.link(self.rows, made / "rows.csv")
        return made

    def learned_whole(self, way: str) -> list[bytes]:
        folder = self.place(f"whole-{way}")
        ended = trained(folder, WORDS[way], None, 0)
        assert ended.code == 0, ended
        assert (folder / "a.csv").read_bytes().count(b"\n") > 5
        return read_outputs(folder)

    def next_number(self) -> int | None:
        with self.lock:
            return self.numbers.pop() if self.numbers else None

    def stream(self, worker: int) -> None:
        """One stream after the other, each in its way."""
        try:
            self._streams(worker)
        except BaseException:
            self.numbers.clear()  # the others need not go on
            raise

    def _streams(self, worker: int) -> None:
        turn = 0
        while self.numbers:
            way = list(WORDS)[turn % len(WORDS)]
            turn += 1
            folder = self.place(f"{worker}-{turn}")
            while self.go_on(folder, way):
                pass
            # A kill may come after the last save: whoever comes next clears up.
            source = WORDS[way][1]
            last = trained(folder, ["train", source, *TRAIN, "--resume"], None, 0)
            assert last.code == 0, last
            assert read_outputs(folder) == self.whole[way], (way, folder)
            assert sorted(os.listdir(folder)) == ["a.csv", "m.npz", "p.csv", "rows.csv"]
            self.count("streams learned whole")

    def go_on(self, folder: Path, way: str) -> bool:
        """Start a trainer and end it; whether there is more to learn."""
        number = self.next_number()
        if number is None:
            return False
        with self.lock:
            seed = len(self.numbers)
        ended = trained(folder, WORDS[way], lambda: number, seed)
        check_end(ended, number)
        if ended.when == "never":
            with self.lock:
                self.numbers.insert(0, number)
            return False
        if "KeyboardInterrupt" in ended.said:
            ended = ended._replace(when=EARLY)
        kind = "kill" if number == signal.SIGKILL else signal.Signals(number).name
        self.count(f"{kind}, {ended.when}", f"{kind}s", f"ends of '{way}'")
        return not complete(folder / "m.npz")

    def count(self, *names: str) -> None:
        with self.lock:
            self.counts.update(names)


def test_any_end_at_any_moment(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers = [int(signal.SIGKILL)] * KILLS
    numbers += [int(POLITE[at % 3]) for at in range(SIGNALS)]
    random.Random(5).shuffle(numbers)
    campaign = Campaign(tmp_path, numbers)
    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(campaign.stream, range(2)))
    finally:
        with capsys.disabled():
            print("\n" + "\n".join(f"{n:5} {name}" for name, n in sorted(campaign.counts.items())))
    assert campaign.counts["kills"] == KILLS
    assert sum(campaign.counts[f"{number.name}s"] for number in POLITE) == SIGNALS
    met = campaign.counts["SIGINTs"] - campaign.counts[f"SIGINT, {EARLY}"]
    assert met >= SIGNALS // 5  # Python's own first moments took no more than some of them
    assert campaign.counts["streams learned whole"] >= 20
