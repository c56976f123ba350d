"""Labels in buckets: a column of any number of values has as many inputs as it has buckets.

Which bucket a label falls into depends on its text alone, so that nothing has to be remembered and
every reading of every format agrees. Labels that share a bucket are one to the network.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from kbnn.errors import UsageError
from kbnn.model.schema import MAX_BUCKETS
from kbnn.stream.values import Labels


def hash_label(label: str, buckets: int) -> str:
    """The bucket of a label, as the name of a category."""
    return f"#{zlib.crc32(label.encode()) % buckets}"


def hash_labels(found: Labels, buckets: int) -> Labels:
    """The buckets of labels, in the place of the labels."""
    names: dict[str, int] = {}
    at = [names.setdefault(hash_label(name, buckets), len(names)) for name in found.names]
    codes = np.array([*at, -1], np.int64)[found.codes]
    return Labels(list(names), codes)


def parse_hash_options(texts: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """`device:32` as a column and its buckets."""
    pairs = []
    for text in texts:
        name, _, number = text.rpartition(":")
        if not name or not number.isdecimal() or not 2 <= int(number) <= MAX_BUCKETS:
            raise UsageError(
                f"--hash takes COLUMN:BUCKETS such as device:32, 2 to {MAX_BUCKETS:,}, not '{text}'"
            )
        pairs.append((name, int(number)))
    return tuple(pairs)


def check_conflicting_kinds(
    categorical: Sequence[str], numeric: Sequence[str], hashed: Sequence[tuple[str, int]]
) -> None:
    """Refuse two kinds for one column."""
    said: dict[str, str] = {}
    for option, names in (
        ("--categorical", categorical),
        ("--numeric", numeric),
        ("--hash", [name for name, _ in hashed]),
    ):
        for name in dict.fromkeys(names):
            if name in said:
                raise UsageError(f"column '{name}' cannot be both {said[name]} and {option}")
            said[name] = option
