"""The documents keep their word: every block runs, every command, option and key is there."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import kbnn
from docs import commands
from kbnn.option_table import FORMER_FLAGS
from kbnn_cli.app import COMMANDS
from kbnn_cli.commands.help import list_option_names
from tests.commands import SAMPLES
from tests.commands import kbnn as command
from tests.transcripts import README, Step, matches, run, transcripts

ROOT = README.parent
PAGES = sorted((ROOT / "docs").rglob("*.md"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHOWN = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}
STEPS = [(name, block) for name, text in SHOWN.items() for block in transcripts(text)]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(SAMPLES, tmp_path / "samples", ignore=shutil.ignore_patterns("*.py", "paper"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("page", "steps"), STEPS, ids=[f"{p}:{s[0].command}" for p, s in STEPS])
def test_a_transcript_prints_what_it_says(page: str, steps: list[Step], here: Path) -> None:
    for step in steps:
        printed = run(step.command, here)
        assert matches(step.expected, printed), f"$ {step.command}\n{printed}"


def python_blocks(text: str) -> list[str]:
    return [body for kind, body in FENCE.findall(text) if kind == "python"]


WITH_PYTHON = [name for name, text in SHOWN.items() if python_blocks(text)] + ["README.md"]


@pytest.mark.parametrize("page", WITH_PYTHON)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_python_of_a_page_runs_from_top_to_bottom(page: str, here: Path) -> None:
    text = SHOWN.get(page) or README.read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": "__page__"}
    with contextlib.redirect_stdout(io.StringIO()):
        for block in python_blocks(text):
            exec(compile(block, page, "exec"), names)


def test_no_block_is_of_a_kind_that_is_not_run() -> None:
    for name, text in SHOWN.items():
        kinds = {kind for kind, _ in FENCE.findall(text)}
        assert kinds <= {"console", "python", "text"}, name


def test_the_types_of_keywords_are_what_the_table_of_options_makes() -> None:
    assert commands.KEYWORDS.read_text(encoding="utf-8") == commands.build_keywords()


def test_the_page_of_commands_is_what_the_commands_make() -> None:
    assert commands.PAGE.read_text(encoding="utf-8") == commands.made(), "python -m docs.commands"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_documented(name: str) -> None:
    page = commands.command_page(name)
    for option in list_option_names(name):
        assert option in ("--help", "--help-all") or f"`{option}`" in page


def test_every_page_is_listed_and_every_public_name_described() -> None:
    listed = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in PAGES:
        assert page.relative_to(ROOT / "docs").as_posix() in listed
    reference = SHOWN["docs/reference/python.md"]
    constants = {"ALARM", "LEARNED", "REJECTED", "UNLABELLED", "State", "__version__"}
    for name in set(kbnn.__all__) - constants:
        home = inspect.getmodule(getattr(kbnn, name))
        assert home is not None
        assert f"::: {home.__name__}.{name}" in reference or f".{name}\n" in reference


def test_every_json_key_is_documented(here: Path) -> None:
    page = SHOWN["docs/reference/json.md"]
    command("train", "samples/load.csv", "--limit", "300", "-m", "l.npz", "-q")
    command("train", "samples/moons.csv", "--limit", "100", "-m", "c.npz", "-q")
    asked = [
        ("train", "samples/cubic_small.csv", "-m", "m.npz", "-q"),
        ("evaluate", "m.npz", "samples/cubic_small.csv", "-q"),
        ("evaluate", "c.npz", "samples/moons.csv", "-q", "--metric", "auc", "--cost-fn", "2"),
        ("evaluate", "l.npz", "samples/load.csv", "-q", "--limit", "100"),
        ("predict", "m.npz", "samples/cubic_small.csv", "-o", "o.csv", "-q", "--ask", "2"),
        ("inspect", "m.npz", "--weights"),
        ("train", "samples/moons.csv", "-m", "n.npz", "--dry-run", "-q"),
        ("inspect", "m.npz", "--diff", "m.npz"),
    ]
    for words in asked:
        for key in json.loads(command(*words, "--json").out):
            assert f"`{key}`" in page, f"{key} of {words[0]}"


def all_keys(found: object) -> set[str]:
    """The keys of a JSON value and of all that is in it."""
    if isinstance(found, dict):
        return set(found).union(*(all_keys(value) for value in found.values()))
    return set().union(*map(all_keys, found)) if isinstance(found, list) else set()


def test_every_documented_json_key_is_printed(here: Path) -> None:
    rows = (here / "samples" / "cubic.csv").read_text().splitlines()
    with_key = [f"device,{rows[0]}", *(f"d{at % 3},{row}" for at, row in enumerate(rows[1:300]))]
    (here / "keyed.csv").write_text("\n".join(with_key) + "\n")
    (here / "events.csv").write_text("start,end\n5,9\n")
    command("train", "samples/load.csv", "--limit", "300", "-m", "l.npz", "-q")
    command("train", "samples/moons.csv", "--limit", "100", "-m", "c.npz", "-q")
    asked = [
        ("train", "samples/cubic.csv", "-m", "m.npz", "-q", "--test-split", "0.2"),
        ("train", "keyed.csv", "-m", "fleet", "--key", "device", "-q"),
        ("train", "samples/moons.csv", "-m", "n.npz", "--dry-run", "-q"),
        ("evaluate", "m.npz", "samples/cubic.csv", "-q", "--quantiles", "0.5"),
        ("evaluate", "c.npz", "samples/moons.csv", "-q", "--metric", "auc", "--cost-fn", "2"),
        ("evaluate", "l.npz", "samples/load.csv", "-q", "--limit", "100"),
        ("evaluate", "m.npz", "samples/cubic.csv", "-q", "--events", "events.csv"),
        ("evaluate", "fleet", "keyed.csv", "-q"),
        ("evaluate", "l.npz", "samples/load.csv", "-q", "--horizon", "2", "--limit", "100"),
        ("predict", "m.npz", "samples/cubic.csv", "-o", "o.csv", "-q", "--ask", "2"),
        ("inspect", "m.npz", "--weights"),
        ("inspect", "m.npz", "--diff", "l.npz"),
        ("inspect", "fleet"),
    ]
    printed = set().union(*(all_keys(json.loads(command(*w, "--json").out)) for w in asked))
    first_cells = re.findall(r"^\| ([^|]*) \|", SHOWN["docs/reference/json.md"], re.MULTILINE)
    documented = {key for cell in first_cells for key in re.findall(r"`([^`]+)`", cell)}
    assert len(documented) > 50
    assert documented - printed == set()


def test_the_arrays_of_a_model_file_are_those_documented(here: Path) -> None:
    wide = ",".join(f"c{at}" for at in range(100))
    lines = [",".join(str((7 * row * at) % 11 + row % 3) for at in range(100)) for row in range(60)]
    (here / "wide.csv").write_text("\n".join([wide, *lines]) + "\n")
    late = "".join(f"{row},{row},{row if row < 60 else ''}\n" for row in range(80))
    (here / "late.csv").write_text(f"id,x,y\n{late}")
    found: set[str] = set()
    for words in (
        ("samples/sensors.csv", "--ensemble", "2", "--limit", "100"),
        ("samples/moons.csv", "--limit", "100"),
        ("samples/load.csv", "--limit", "100"),
        ("wide.csv",),
        ("late.csv", "--id", "id", "--target", "y"),
        ("samples/sensors.csv", "--limit", "100", "--alerts", "a.csv", "--watch", "all"),
    ):
        assert command("train", *words, "-m", "m.npz", "--fresh", "-q").code == 0
        with zipfile.ZipFile(here / "m.npz") as file:
            names = [name.removesuffix(".npy") for name in file.namelist()]
        header = set(names) - {"header.json"}
        for part, letter in (("racer", "r"), ("network", "k"), ("detector", "j")):
            header = {re.sub(rf"{part}\d+", f"{part}<{letter}>", name) for name in header}
        found |= header
    page = SHOWN["docs/reference/model_file.md"]
    documented: set[str] = set()
    for cell in re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE):
        first, *others = re.findall(r"`([^`]+)`", cell)
        folder = first.rpartition("/")[0]
        documented |= {first, *(f"{folder}/{name}" for name in others)}
    assert found == documented


def test_every_option_that_a_page_names_is_one(here: Path) -> None:
    known = {"--help", "--version", "--install-completion", "--show-completion"}
    known.update(option for name in COMMANDS for option in list_option_names(name))
    known.update(FORMER_FLAGS)
    known.update(f"--no-{option.removeprefix('--')}" for option in list(known))
    elsewhere = {
        "docs/howto/from_vowpal_wabbit.md",  # names those of another program
        "docs/howto/engines.md",  # and the installer's
        "docs/results.md",  # and those of the benches
        "docs/scale.md",
    }
    benches = {"--errors", "--data", "--keys", "--nn", "--strict"}
    for name, text in {**SHOWN, "README.md": README.read_text(encoding="utf-8")}.items():
        named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))
        if name not in elsewhere:
            assert named - known - benches == set(), name


@pytest.mark.skipif(not shutil.which("mkdocs", path=os.path.dirname(sys.executable)), reason="docs")
@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
