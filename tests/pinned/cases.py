"""All cases by name."""

from __future__ import annotations

from tests.pinned import functions, models, networks, stated, tasks
from tests.pinned.record import Case

CASES: dict[str, Case] = {
    f"{part}: {name}": case
    for part, cases in (
        ("function", functions.cases()),
        ("network", networks.cases()),
        ("stated", stated.cases()),
        ("task", tasks.cases()),
        ("model", models.cases()),
    )
    for name, case in cases.items()
}
