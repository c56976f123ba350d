"""What other methods reach on the same sets: measured once on the same five splits, or published.

One hidden layer of 50 ReLU units where the method has one; RMSE and NLL (nats per row) on the test
part in original units. The number in a name counts passes. Rows that begin with "paper" are quoted
from the paper on KBNN (AAAI-23) and have its own splits. None: not measured. What installs from
PyPI is run again by tests.bench.peers; MEASURED_ONCE says what is known of the others.
"""

from __future__ import annotations

from typing import Final

from tests.bench.data import SETS

Row = tuple[float | None, ...]
_N: Final = None

# In the order of SETS: Boston, Concrete, Energy, Wine, Naval, Yacht, Kin8nm, Power.
RMSE: Final[dict[str, Row]] = {
    "paper KBNN 1": (3.893, 8.396, 4.155, 0.719, 0.034, 3.752, 0.174, 4.243),
    "paper KBNN 10": (2.695, 5.703, 2.404, 0.666, 0.004, 1.584, 0.110, 4.167),
    "paper SVI": (3.434, 7.597, 4.025, 0.726, 0.025, 1.157, 0.101, 4.419),
    "paper MCMC": (2.553, 6.227, 0.906, 0.656, 0.008, 0.879, 0.081, 287.0),
    "paper PBP 40": (2.740, 5.874, 3.274, 0.667, 0.006, 0.867, 0.100, 4.060),
    "PBP 1": (3.65, 8.83, 3.46, 0.701, 0.0118, 8.02, 0.159, 4.26),
    "PBP 40": (2.63, 6.16, 1.75, 0.681, 0.0056, 0.93, 0.099, 4.06),
    "TAGI 1": (4.83, 7.73, 3.21, 0.693, 0.0087, 5.94, 0.128, 4.16),
    "TAGI-V 1": (5.03, 8.13, 2.97, 0.696, 0.0093, 7.13, 0.140, 4.18),
    "TAGI-V 50": (2.38, 6.22, 2.01, 0.671, 0.0058, 1.18, 0.119, 4.07),
    "torch Adam 1": (3.66, 8.05, 2.88, 0.699, _N, 6.28, 0.140, 4.25),
    "torch Adam 40": (2.73, 5.87, 0.72, 0.678, 0.0012, 0.97, 0.088, 4.05),
    "VW --nn 50": (4.91, 9.98, 3.34, 0.734, 0.0126, 6.20, 0.145, 4.64),
    "river forest": (3.64, 8.31, 1.58, 0.697, 0.0066, 7.26, 0.167, 3.92),
    "Bayesian ridge": (3.71, 10.36, 2.85, 0.730, 0.0058, 8.94, 0.201, 4.54),
    "boosting, batch": (2.51, 4.81, 0.52, 0.627, 0.0014, 2.26, 0.127, 3.32),
    "GP, batch": (2.37, 5.56, 0.47, _N, _N, 0.32, _N, _N),
}
NLL: Final[dict[str, Row]] = {
    "paper KBNN 1": (3.183, 3.676, 3.078, 1.529, 1.266, 3.033, -0.255, 3.062),
    "paper KBNN 10": (2.767, 8.428, 2.394, 1.127, 0.128, 2.325, -0.758, 2.922),
    "paper SVI": (2.690, 3.446, 2.877, 1.107, -1.817, 1.435, -0.869, 3.162),
    "paper MCMC": (2.346, 3.236, 1.315, 1.003, -3.424, 1.649, -1.094, 598.0),
    "paper PBP 40": (2.421, 3.119, 2.680, 1.014, -3.736, 1.558, -0.882, 2.820),
    "PBP 1": (2.771, 3.584, 2.720, 1.059, -2.989, 3.462, -0.431, 2.868),
    "PBP 40": (2.376, 3.263, 2.018, 1.033, -3.741, 1.603, -0.892, 2.821),
    "TAGI 1": (2.880, 3.452, 2.707, 1.051, -3.285, 3.304, -0.635, 2.879),
    "TAGI-V 1": (3.096, 3.452, 2.679, 1.046, -3.370, 3.673, -0.722, 2.857),
    "TAGI-V 50": (2.688, 3.137, 1.634, 1.010, -3.851, 1.259, -0.973, 2.822),
    "torch Adam 40": (2.463, 3.261, 1.129, 1.031, -5.331, 1.554, -1.005, 2.818),
    "Bayesian ridge": (2.799, 3.757, 2.475, 1.104, -3.740, 3.613, -0.185, 2.932),
    "GP, batch": (2.235, 3.147, 0.679, _N, _N, 0.145, _N, _N),
}
MEASURED_ONCE: Final[dict[str, str]] = {
    "PBP": "in C, diagonal covariance; shuffles the training part; 1 and 40 passes",
    "TAGI 1": "one row at a time in the split's order; noise picked on validation rows",
    "TAGI-V 1": "the same with noise that depends on the input and is learned",
    "TAGI-V 50": "50 passes in batches of ten",
    "torch Adam 1": "a plain network, one row at a time, the better of two learning rates",
    "torch Adam 40": "40 passes in batches of 32, the better of two learning rates",
    "Bayesian ridge": "a linear model, all rows at once",
    "boosting, batch": "gradient boosting, all rows at once",
    "GP, batch": "a Gaussian process with one length scale a feature, all rows at once",
}
"""What is known of figures measured once, by November 2026, on splits 0 to 4: no versions."""

MICROSECONDS: Final[dict[str, str]] = {
    "paper KBNN": "1659",
    "PBP in C, diagonal covariance": "7-12",
    "TAGI, one row at a time": "17-37",
    "TAGI, batches of 10": "3-5",
    "torch, one row at a time": "550-660",
    "VW --nn 50, with parsing": "22-30",
    "VW linear": "1.4-3",
    "river linear": "10-33",
    "river forest": "1500-7000",
}


def places(method: str, measure: str, name: str, value: float) -> int:
    """Decimals to which a figure is known."""
    if measure == "nll" or method.startswith("paper"):
        return 3
    if name == "naval":
        return 4
    return 3 if value < 1.0 else 2


def ties(method: str, measure: str, name: str, ours: float, error: float) -> bool:
    """Whether we differ by no more than our standard error, or not in the digits that are known."""
    theirs = anchor(RMSE if measure == "rmse" else NLL, method, name)
    if theirs is None:
        return False
    return abs(ours - theirs) <= error or _equal(method, measure, name, ours, theirs)


def lower(method: str, measure: str, name: str, ours: float) -> bool:
    """Whether we are lower than a method, in the digits that are known."""
    theirs = anchor(RMSE if measure == "rmse" else NLL, method, name)
    if theirs is None:
        return False
    return ours < theirs and not _equal(method, measure, name, ours, theirs)


def _equal(method: str, measure: str, name: str, ours: float, theirs: float) -> bool:
    known = places(method, measure, name, theirs)
    return round(ours, known) == round(theirs, known)


def anchor(table: dict[str, Row], method: str, name: str) -> float | None:
    """A method's figure on one set; None where it was not measured."""
    return table[method][SETS.index(name)] if method in table else None
