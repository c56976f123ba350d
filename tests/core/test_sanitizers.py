"""The kernel's tests with a kernel that watches every access: AddressSanitizer and UBSan.

    python -m pytest -m slow tests/core/test_sanitizers.py

Builds the extension from the sources that pyproject.toml names, in a folder of its own, and runs
the tests there. A bug planted on purpose shows that the watch is kept.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TESTS = ["kernel", "kernel_limits", "chunking", "session", "constants", "formulas", "scaling"]
TESTS += ["decimals", "wide", "sharpness"]
FLAGS = ["-O1", "-g", "-fno-math-errno", "-ffp-contract=fast", "-fPIC", "-shared"]
WATCH = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="preloads the sanitizer as Linux does"),
]


def watched(folder: Path) -> dict[str, str]:
    """Copy the package, build its kernel with sanitizers; the environment to run tests in."""
    compiler = shutil.which("gcc")
    cython = shutil.which("cython", path=str(Path(sys.executable).parent))
    if compiler is None or cython is None:
        pytest.skip("needs gcc and cython")
    for name in ("kbnn", "kbnn_cli", "tests", "samples"):
        if not (folder / name).exists():
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.so", "__pycache__")
            )
    shutil.copy(ROOT / "pyproject.toml", folder)
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (module,) = build["tool"]["setuptools"]["ext-modules"]
    binding, *sources = (folder / source for source in module["sources"])
    made = binding.with_suffix(".c")
    subprocess.run([cython, "-3", binding, "-o", made], check=True)
    out = binding.with_suffix(str(sysconfig.get_config_var("EXT_SUFFIX")))
    include = [sysconfig.get_paths()["include"], *(folder / at for at in module["include-dirs"])]
    paths = [f"-I{at}" for at in include]
    subprocess.run([compiler, *FLAGS, *WATCH, *paths, "-o", out, made, *sources, "-lm"], check=True)
    runtime = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], check=True, capture_output=True, text=True
    ).stdout.strip()
    return {
        **os.environ,
        "LD_PRELOAD": runtime,
        "PYTHONPATH": str(folder),
        "PYTHONMALLOC": "malloc",  # so that each object has borders of its own
        # The interpreter keeps what it likes; memory that is not there is an error to be handled.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def run(
    folder: Path, environment: dict[str, str], tests: list[str], *options: str
) -> tuple[int, str]:
    # The sanitizer takes more address space than a limit on it would leave.
    command = [sys.executable, "-m", "pytest", "-k", "not short_memory", *options]
    done = subprocess.run(
        command + [f"tests/test_{name}.py" for name in tests],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_kernels_tests_pass_under_sanitizers(tmp_path: Path) -> None:
    environment = watched(tmp_path)
    where = "import kbnn.core._kernel as kernel; print(kernel.__file__)"
    used = subprocess.run(
        [sys.executable, "-c", where],
        cwd=tmp_path,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert used.startswith(str(tmp_path))
    code, said = run(tmp_path, environment, TESTS)
    assert code == 0, said[-4000:]


PLANTED = {
    "one beyond": (
        "inputs.h",
        "for (int64_t i = 0; i < d; i++) {\n        double value",
        "for (int64_t i = 0; i <= d; i++) {\n        double value",
        "chunking",
    ),
    "an overflow": ("rows.h", "counts[KB_ROWS]++;", "counts[KB_ROWS] += INT64_MAX;", "chunking"),
    "a number too many": (
        "decimals.c",
        "out + j * rows + row",
        "out + j * rows + row + 1",
        "decimals",
    ),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_caught(bug: str, tmp_path: Path) -> None:
    name, line, planted, test = PLANTED[bug]
    shutil.copytree(ROOT / "kbnn", tmp_path / "kbnn", ignore=shutil.ignore_patterns("*.so"))
    source = tmp_path / "kbnn" / "core" / "csrc" / name
    text = source.read_text()
    assert line in text
    source.write_text(text.replace(line, planted, 1))
    code, said = run(tmp_path, watched(tmp_path), [test], "-n0", "-s")
    assert code != 0
    assert "AddressSanitizer: heap-buffer-overflow" in said or "runtime error" in said, said[-4000:]
