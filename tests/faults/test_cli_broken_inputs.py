"""Every broken input at the command line: its sentence, the exit code, no traceback, no debris."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kbnn.model.file import load
from kbnn_cli.app import run_command_line
from tests.broken_inputs import ALL, OPTIONS, Broken
from tests.streams import look

CASES = [broken for broken in ALL if "skip" not in broken.options]
"""All but those about a setting that has no option of its own."""


def flags(options: dict[str, Any]) -> list[str]:
    """Reading options as a user would type them."""
    words: list[str] = []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif value is False:
            words.append(option.replace("--", "--no-", 1))
        elif name == "na":
            words += [word for token in value for word in (option, token)]
        else:
            words += [option, ",".join(value) if isinstance(value, tuple) else str(value)]
    return words


@pytest.mark.thinned(2)
@pytest.mark.parametrize("broken", CASES, ids=[broken.name for broken in CASES])
def test_one_sentence_the_right_code_and_nothing_half_written(
    broken: Broken,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t").write_bytes(broken.data)
    kind = look(["t"], **broken.options).error.partition(":")[0]
    code = run_command_line(["train", "t", *flags(broken.options)])
    out, err = capsys.readouterr()
    assert out == ""
    assert "Traceback" not in err
    if broken not in OPTIONS:  # the command line has words of its own for a bad option
        assert err.splitlines()[-1] == f"kbnn: {broken.error.format(f='t')}"
    assert code == (2 if kind == "UsageError" or broken in OPTIONS else 1)
    assert len(err.splitlines()[-1]) > len("kbnn: ")
    left = {path.name for path in tmp_path.iterdir()} - {"t", "model.npz", "model.npz.lock"}
    assert not left
    if Path("model.npz").exists():
        load("model.npz")


def test_there_are_sixty() -> None:
    assert len(CASES) >= 60
