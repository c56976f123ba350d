"""Packed models: side by side, rested and alone they are the same to the bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kbnn.core import kernel
from kbnn.errors import ModelError
from kbnn.fleet import packing
from kbnn.fleet import packing as of
from kbnn.fleet import partition as part_module
from kbnn.fleet.fleet import Fleet
from kbnn.fleet.store import FleetStore
from tests.commands import kbnn
from tests.fleet.test_fleet import models

pytestmark = pytest.mark.skipif(not kernel.is_compiled(), reason="the kernel is not built")


def restless(path: Path, rows: int = 1500, keys: int = 12) -> Path:
    """A stream in which everything happens that may happen to a key."""
    draw = np.random.default_rng(5)
    device = np.minimum(draw.integers(0, keys, rows), draw.integers(0, keys, rows))
    a, b = draw.normal(size=rows), 100.0 * draw.normal(size=rows)
    y = np.sin(2.0 * a) + device + 0.2 * draw.normal(size=rows)
    y[draw.random(rows) < 0.02] += 50.0  # outliers
    late = np.arange(rows) > rows // 2
    y[late & (device == 0)] *= 40.0  # a scale that is outgrown
    y[late & (device == 1)] = 7.0 - y[late & (device == 1)]  # a change that raises an alarm
    b[(device == 2) & ~late] = 3.0  # a column that has not varied
    kind = np.where(np.arange(rows) < 900, "u", np.where(draw.random(rows) < 0.3, "v", "u"))
    with path.open("w") as file:
        file.write("device,a,b,kind,w,y\n")
        for k in range(rows):
            cell = "" if draw.random() < 0.05 else f"{a[k]:.4f}"
            target = "" if draw.random() < 0.03 else f"{y[k]:.4f}"
            file.write(f"d{device[k]},{cell},{b[k]:.4f},{kind[k]},{1 + k % 3},{target}\n")
    return path


def trained(fleet: str, *words: str) -> bytes:
    out = f"{fleet}.csv"
    said = kbnn(
        "train", "rows.csv", "--target", "y", "--key", "device", "-m", fleet, "-q",
        "--predictions", out, *words,
    )  # fmt: skip
    assert said.code == 0, said.err
    return Path(out).read_bytes()


@pytest.mark.parametrize(
    "words",
    [
        [],
        pytest.param(["--no-common"], marks=pytest.mark.slow),
        pytest.param(["--weight", "w"], marks=pytest.mark.slow),
        pytest.param(["--robust", "off"], marks=pytest.mark.slow),
    ],
)
def test_packed_models_are_the_models_that_objects_would_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    restless(tmp_path / "rows.csv")
    said = trained("packed", *words)
    assert trained("few", "--open", "3", *words) == said
    with monkeypatch.context() as patch:
        patch.setattr(part_module, "MAX_BATCHED_ROWS", 0)
        assert trained("alone", *words) == said
        patch.setattr(of, "supports_packing", lambda *_: False)
        assert trained("objects", *words) == said
    found = models("packed")
    assert found == models("few") == models("alone") == models("objects")
    with FleetStore("packed", writes=False) as store:
        kept = [store.read(key) or b"" for key in found]
        assert sum(map(packing.is_packed, kept)) >= len(found) - 2
        alarms = {key: told.alarms for key, told in store.iter_key_metrics()}
    assert max(alarms.values()) > 0
    asked = ("rows.csv", "--limit", "200")
    assert kbnn("predict", "packed", *asked).out == kbnn("predict", "objects", *asked).out
    wide = (*asked, "--intervals", "stated")
    assert kbnn("predict", "packed", *wide).out == kbnn("predict", "objects", *wide).out


def test_packed_models_that_have_let_rows_go_are_what_objects_would_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a common start rows before the first target are not learned: scale and learning
    curve are then looked at after different rows.
    """
    monkeypatch.chdir(tmp_path)
    restless(tmp_path / "rows.csv", rows=300, keys=2)
    said = trained("packed", "--no-common")
    monkeypatch.setattr(of, "supports_packing", lambda *_: False)
    assert trained("objects", "--no-common") == said
    assert models("packed") == models("objects")


def test_a_packed_model_that_is_damaged_is_refused(tmp_path: Path) -> None:
    source = restless(tmp_path / "rows.csv", rows=300)
    name = str(tmp_path / "fleet")
    words = ("--target", "y", "--key", "device", "-m", name, "-q")
    assert kbnn("train", str(source), *words).code == 0
    with FleetStore(name, writes=False) as store:
        fleet = Fleet.load(store)
        assert fleet is not None
        content = next(
            c for k, _ in store.iter_key_metrics() if packing.is_packed(c := store.read(k) or b"")
        )
        form = fleet.models.layouts.find_by_name(packing.read_layout_name(content))
        whole = packing.packed_from_bytes(form, content)
        assert packing.packed_to_bytes(form, whole) == content
        draw = np.random.default_rng(0)
        for _ in range(200):
            at, bit = int(draw.integers(len(content))), 1 << int(draw.integers(8))
            broken = bytearray(content)
            broken[at] ^= bit
            with pytest.raises(ModelError, match="damaged"):
                packing.packed_from_bytes(form, bytes(broken))
        for length in (0, 5, 40, len(content) - 1):
            with pytest.raises(ModelError, match="damaged"):
                packing.packed_from_bytes(form, content[:length])
