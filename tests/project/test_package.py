"""What is shipped: the package builds, installs where there is no compiler, and runs elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import kbnn

ROOT = Path(__file__).parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_one_version() -> None:
    assert PROJECT["project"]["version"] == kbnn.__version__
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^version: (.*)$", cited, re.M) is not None
    assert re.findall(r"^version: (.*)$", cited, re.M) == [kbnn.__version__]


@pytest.mark.skipif(not (ROOT / "kbnn").is_dir(), reason="tests of a wheel, which has no sources")
def test_every_source_of_the_kernel_is_named() -> None:
    (extension,) = PROJECT["tool"]["setuptools"]["ext-modules"]
    named = {*extension["sources"], *extension["depends"]}
    there = {
        path.relative_to(ROOT).as_posix()
        for pattern in ("*.c", "*.h")
        for path in (ROOT / "kbnn/core/csrc").glob(pattern)
    }
    assert there <= named
    assert all((ROOT / name).exists() for name in named)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="paths of POSIX")
def test_a_wheel_runs_outside_the_tree_without_a_compiler(tmp_path: Path) -> None:
    """Built here, installed in a new environment, tested from another folder."""
    run([sys.executable, "-m", "build", "-o", str(tmp_path / "dist"), str(ROOT)])
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert list((tmp_path / "dist").glob("*.tar.gz"))
    run([sys.executable, "-m", "venv", str(tmp_path / "venv")])
    python = tmp_path / "venv/bin/python"
    bare = {"PATH": str(tmp_path / "venv/bin"), "CC": "/nowhere/cc"}
    run([str(python), "-m", "pip", "install", "-q", f"{wheel}[test]"], bare=bare)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("tests", "samples"):
        shutil.copytree(ROOT / name, elsewhere / name)
    for name in ("pyproject.toml", "README.md", "CITATION.cff"):
        shutil.copy(ROOT / name, elsewhere)
    said = run([str(tmp_path / "venv/bin/kbnn"), "--version"], cwd=elsewhere, bare=bare)
    assert said.startswith(f"kbnn {kbnn.__version__} (compiled, ")
    where = run([str(python), "-c", "import kbnn; print(kbnn.__file__)"], cwd=elsewhere, bare=bare)
    assert where.startswith(str(tmp_path / "venv"))
    tests = [f"tests/test_{name}.py" for name in ("front", "cli_train", "kernel", "moments")]
    run([str(python), "-m", "pytest", "-q", *tests], cwd=elsewhere, bare=bare)


def run(words: list[str], cwd: Path | None = None, bare: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **(bare or {})},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
