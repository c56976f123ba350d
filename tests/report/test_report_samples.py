"""The pages that `evaluate` and `inspect` make of the samples, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import SAMPLES, kbnn
from tests.report.test_report import HOSTILE
from tests.report.test_report_browser import BROWSER, opened

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium to open the page with"),
]

HOSTILE_ROWS = "".join(
    f'{i % 17},{i * 7 % 23},"<b>{i % 2}</b>",{i % 17 + i % 2}\n' for i in range(300)
)
NAMES = [
    *("cubic", "cubic_small", "moons", "circles", "rotating_moons", "sensors"),
    *("load", "visits", "prices", "rain", "hostile"),
]


@pytest.mark.parametrize("command", ["evaluate", "inspect"])
@pytest.mark.parametrize("name", NAMES)
def test_the_page_of_a_sample(name: str, command: str, tmp_path: Path) -> None:
    source = SAMPLES / f"{name}.csv"
    if name == "hostile":
        source = tmp_path / "hostile.csv"
        source.write_text(f'{HOSTILE},"a ""b"" & c",kind,y\n{HOSTILE_ROWS}')
    model, page = tmp_path / "model.npz", tmp_path / "report.html"
    assert kbnn("train", source, "-m", model, "-q").code == 0
    data = [source] if command == "evaluate" else []
    assert kbnn(command, model, *data, "--report", page).code == 0
    for width in (1280, 390):
        seen, log = opened(tmp_path, width)
        assert seen["pictures"] >= 6
        assert seen["scroll"] <= seen["width"]
        assert (seen["wide"], seen["spilled"], seen["requests"]) == ([], [], [])
        assert seen["scripts"] == 0
        assert "CONSOLE" not in log, log
        assert name != "hostile" or HOSTILE in seen["text"]
        assert ("What comes next" in seen["text"]) == (name == "load")
