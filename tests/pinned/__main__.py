"""Writes the numbers anew: `python -m tests.pinned`."""

from __future__ import annotations

from tests.pinned.cases import CASES
from tests.pinned.record import FILE, differences, read, write, written


def main() -> None:
    """By the engine that serves; says which cases moved."""
    before = read() if FILE.exists() else {}
    made = {name: case.make() for name, case in CASES.items()}
    for name, found in made.items():
        wrong = differences(found, before.get(name, {}), CASES[name].close)
        if name not in before:
            print(f"{name}: new")
        elif wrong:
            print(f"{name}: {len(wrong)} moved, {wrong[0]}")
    write({name: written(found) for name, found in made.items()})
    print(f"{len(made)} cases, {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
