"""All cases by name."""

from __future__ import annotations

from tests.pinned import functions, networks, stated
from tests.pinned.record import Case

CASES: dict[str, Case] = {
    f"{part}: {name}": case
    for part, cases in (
        ("function", functions.cases()),
        ("network", networks.cases()),
        ("stated", stated.cases()),
    )
    for name, case in cases.items()
}
