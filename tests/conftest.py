"""Tests run side by side on all cores, so matrix libraries get one thread each.

Commands are run as processes of their own, hundreds of times: they may keep their compiled modules.
Of a test marked thinned(n) one case in n is run by default, the others are slow. Shells start
background jobs with SIGINT ignored, and nohup ignores SIGHUP; tests and the processes they start
need both.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter

import pytest

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the cases that are left out as slow."""
    met: Counter[str] = Counter()
    for item in items:
        thinned = item.get_closest_marker("thinned")
        if thinned is None:
            continue
        test = item.nodeid.partition("[")[0]
        if met[test] % thinned.args[0]:
            item.add_marker("slow")
        met[test] += 1
