"""What the paper does not say: its algorithm on the UCI sets with other noises, priors and scales.

The paper states neither prior nor noise nor whether the target is standardised. Here its algorithm
runs under several readings, beside the printed KBNN 1 and KBNN 10; and the spread over initial
weights on one split beside the spread over splits.
Run: python -m samples.paper.silences --data DIR
"""

from typing import NamedTuple

import numpy as np

from samples.paper import common, data, published, report
from samples.paper.options import Options, parse
from samples.paper.published import Figure
from samples.paper.runs import Case, Result, gather
from samples.paper.uci import EPOCHS, HIDDEN, digits

QUICK = ("boston", "concrete", "energy", "yacht")


class Setting(NamedTuple):
    """One reading of the paper; `own_units` leaves the target as it is in the file."""

    noise: float
    hidden_noise: float
    sd_scale: float
    own_units: bool


SETTINGS = {
    "paper mode": Setting(common.PAPER_NOISE, common.PAPER_NOISE, 1.0, False),
    "no noise": Setting(0.0, 0.0, 1.0, False),
    "noise 0.1": Setting(0.1, 0.01, 1.0, False),
    "noise 0.5": Setting(0.5, 0.01, 1.0, False),
    "prior sd x 2": Setting(0.01, 0.01, 2.0, False),
    "own units": Setting(0.0, 0.01, 1.0, True),
    "own units, prior sd x 2": Setting(0.0, 0.1, 2.0, True),
    "own units, prior sd x 3": Setting(0.0, 0.1, 3.0, True),
    "own units, prior sd x 5": Setting(0.0, 0.1, 5.0, True),
}


def reading(case: Case, options: Options) -> Result:
    """RMSE and NLL after one and after ten passes of one setting."""
    part = data.split(options.data, str(case["set"]), int(str(case["split"])))
    setting, seed = SETTINGS[str(case["setting"])], int(str(case["weights"]))
    learner = common.printed(
        HIDDEN,
        part.x,
        part.y,
        seed,
        noise=setting.noise,
        hidden_noise=setting.hidden_noise,
        sd_scale=setting.sd_scale,
    )
    if setting.own_units:
        learner.scale = learner.scale._replace(y_mean=np.zeros(1), y_sd=np.ones(1))
    result: Result = {"rmse": [], "nll": []}
    passes = common.passes(learner, part.x, part.y, max(EPOCHS))
    for epoch, trained in enumerate(passes, 1):
        if epoch in EPOCHS:
            answer = trained.ask(part.x_test)
            result["rmse"].append(common.rmse(answer, part.y_test))
            result["nll"].append(common.nll(answer.mean, answer.var, part.y_test))
    return result


def main(options: Options) -> None:
    """A table per measure and number of passes, and the table of spreads."""
    sets = QUICK if options.quick else data.SETS
    cases: list[Case] = [
        {"set": name, "setting": setting, "split": seed, "weights": seed}
        for name in reversed(sets)
        for setting in SETTINGS
        for seed in range(options.seeds)
    ]
    weights: list[Case] = [
        {"set": name, "setting": "paper mode", "split": 0, "weights": seed}
        for name in reversed(sets)
        for seed in range(options.seeds)
    ]
    results = gather(reading, [*cases, *weights], options, "readings of the paper")
    of_splits = list(zip(cases, results[: len(cases)], strict=True))
    of_weights = list(zip(weights, results[len(cases) :], strict=True))

    for place, epochs in enumerate(EPOCHS):
        for measure, paper in (("rmse", published.RMSE), ("nll", published.NLL)):
            printed = {name: paper[name][f"KBNN{epochs}"] for name in sets}
            found = {
                (name, setting): figure(of_splits, name, setting, measure, place)
                for name in sets
                for setting in SETTINGS
            }
            report.show(table(measure, epochs, printed, found, options), options)
    spreads = [
        [
            name.capitalize(),
            *(
                f"{one.spread or 0.0:.{digits(name, 'rmse')}f}"
                for one in (
                    published.RMSE[name]["KBNN1"],
                    figure(of_weights, name, "paper mode", "rmse", 0),
                    figure(of_splits, name, "paper mode", "rmse", 0),
                )
            ),
        ]
        for name in sets
    ]
    report.show(
        report.Table(
            "silences_spread",
            "Spread of the RMSE after one pass (standard deviation)",
            ("set", "paper", "other weights, one split", "other weights, other splits"),
            spreads,
            f"Paper mode, {options.seeds} runs each.",
        ),
        options,
    )


def figure(
    runs: list[tuple[Case, Result]], name: str, setting: str, measure: str, place: int
) -> Figure:
    """Mean and spread of one set under one setting."""
    return report.summary(
        [
            result[measure][place]
            for case, result in runs
            if (case["set"], case["setting"]) == (name, setting)
        ]
    )


def agrees(ours: Figure, theirs: Figure) -> bool:
    """Within the two spreads, and near: a collapsed density is within any spread of its own."""
    near = abs(ours.mean - theirs.mean) <= 0.3 * max(1.0, abs(theirs.mean))
    return near and report.verdict(ours, theirs) == "even"


def table(
    measure: str,
    epochs: int,
    printed: dict[str, Figure],
    found: dict[tuple[str, str], Figure],
    options: Options,
) -> report.Table:
    """One measure after so many passes; the last row counts the sets that agree."""
    rows = []
    agree = dict.fromkeys(SETTINGS, 0)
    for name, theirs in printed.items():
        row = [name.capitalize(), report.text(theirs, digits(name, measure))]
        for setting in SETTINGS:
            ours = found[name, setting]
            same = agrees(ours, theirs)
            agree[setting] += same
            row.append(_short(ours, digits(name, measure)) + (" =" if same else ""))
        rows.append(row)
    count = len(printed)
    rows.append(["within the spreads", "", *(f"{agree[one]} of {count}" for one in SETTINGS)])
    return report.Table(
        f"silences_{measure}_{epochs}",
        f"{measure.upper()} of the paper's algorithm under several readings, {epochs} "
        f"pass{'es' if epochs > 1 else ''}",
        ("set", "paper", *SETTINGS),
        rows,
        f"{options.seeds} splits; = is within the two spreads (and within 0.3 or 30 %). Noise: "
        "variance in standardised units. Own units: the target is not standardised, no noise on "
        "it; hidden noise 0.01, and 0.1 with the wider priors.",
    )


def _short(figure: Figure, places: int) -> str:
    """The mean; a power of ten where a density has collapsed."""
    return f"{figure.mean:.0e}" if abs(figure.mean) >= 1000 else f"{figure.mean:.{places}f}"


if __name__ == "__main__":
    main(parse(__doc__))
