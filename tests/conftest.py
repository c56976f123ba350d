"""Tests run side by side on all cores, so matrix libraries get one thread each.

Commands are run as processes of their own, hundreds of times: they may keep their compiled modules.
"""

from __future__ import annotations

import os
import sys

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")
