"""Influence of the network: 1 to 4 hidden layers of ten, and one layer of 10, 50, 100 or 200 units.

Ten passes over each of six UCI sets: RMSE, NLL and training time.
Run: python -m samples.paper.architecture --data DIR
"""

from typing import NamedTuple

from samples.paper import benchmark, common, data, figures, published, report, small_multiples
from samples.paper.options import Options, parse
from samples.paper.small_multiples import Line
from samples.paper.uci import digits

EPOCHS = 10
QUICK = ("boston", "concrete", "energy", "yacht")


class Study(NamedTuple):
    """One thing that varies, the networks, and the paper's tables about it."""

    name: str
    title: str
    networks: dict[str, tuple[int, ...]]
    rmse: published.Table
    nll: published.Table
    seconds: published.Table


STUDIES = (
    Study(
        "layers",
        "hidden layers of ten",
        {str(n): (10,) * n for n in (1, 2, 3, 4)},
        published.LAYERS_RMSE,
        published.LAYERS_NLL,
        published.LAYERS_SECONDS,
    ),
    Study(
        "neurons",
        "units in one hidden layer",
        {str(n): (n,) for n in (10, 50, 100, 200)},
        published.NEURONS_RMSE,
        published.NEURONS_NLL,
        published.NEURONS_SECONDS,
    ),
)


def main(options: Options) -> None:
    """Both studies."""
    for study in STUDIES:
        show(study, options)


def show(study: Study, options: Options) -> None:
    """Run one study, print its tables and draw its lines (quick: the four small sets)."""
    sets = QUICK if options.quick else data.SIX
    runs: list[benchmark.Run] = [
        (name, mode, hidden)
        for name in reversed(sets)
        for mode in common.MODES
        for hidden in reversed(study.networks.values())
    ]
    results = benchmark.run(runs, EPOCHS, options, study.title)
    found = {
        (name, mode, hidden, measure): report.summary([one[measure][-1] for one in several])
        for (name, mode, hidden), several in results.items()
        for measure in benchmark.MEASURES
    }

    def rows(measure: str, paper: published.Table) -> list[list[str]]:
        several = []
        for name in sets:
            places = 2 if measure == "seconds" else digits(name, measure)
            several.append(
                [
                    name.capitalize(),
                    "paper as printed",
                    *(report.text(paper[name][label], places) for label in study.networks),
                ]
            )
            several += [
                [
                    "",
                    common.MODE_NAMES[mode],
                    *(
                        report.text(found[name, mode, hidden, measure], places)
                        for hidden in study.networks.values()
                    ),
                ]
                for mode in common.MODES
            ]
        return several

    note = f"Ten passes, {options.seeds} random splits 90/10, mean ± sd; time: one thread's own."
    for measure, label, paper in (
        ("rmse", "RMSE", study.rmse),
        ("nll", "NLL", study.nll),
        ("seconds", "training time in seconds", study.seconds),
    ):
        report.show(
            report.Table(
                f"{study.name}_{measure}",
                f"{label} by {study.title}",
                ("set", "", *study.networks),
                rows(measure, paper),
                note,
            ),
            options,
        )
    plt = figures.plots()
    if plt is None:
        return
    across = [float(label) for label in study.networks]
    panels = {}
    for name in sets:
        for measure, paper in (("rmse", study.rmse), ("nll", study.nll)):
            lines = {"paper as printed": Line(across, list(paper[name].values()))}
            for mode in common.MODES:
                lines[common.MODE_NAMES[mode]] = Line(
                    across,
                    [found[name, mode, hidden, measure] for hidden in study.networks.values()],
                )
            panels[name, measure] = lines
    small_multiples.draw(
        plt,
        panels,
        study.title,
        across,
        study.name,
        f"Ten passes by {study.title}; bars: one sd over the splits",
        options,
        log=study.name == "neurons",
        nll_top=10.0,
    )


if __name__ == "__main__":
    main(parse(__doc__))
