"""Learning curves: RMSE and NLL on the test rows after each of twenty passes, hidden layer of 50.

Run: python -m samples.paper.epochs --data DIR
"""

from samples.paper import benchmark, common, data, figures, published, report, small_multiples
from samples.paper.options import Options, parse
from samples.paper.small_multiples import Line
from samples.paper.uci import HIDDEN, digits

EPOCHS = 20
SHOWN = (1, 5, 10, 20)
QUICK = ("boston", "concrete", "energy", "yacht")


def main(options: Options) -> None:
    """Curves of the six sets of the paper's supplement (quick: of the four small ones)."""
    sets = QUICK if options.quick else data.SIX
    runs: list[benchmark.Run] = [
        (name, mode, HIDDEN) for name in reversed(sets) for mode in common.MODES
    ]
    results = benchmark.run(runs, EPOCHS, options, "twenty passes")
    curves = {
        (name, mode, measure): [
            report.summary([one[measure][epoch] for one in several]) for epoch in range(EPOCHS)
        ]
        for (name, mode, _), several in results.items()
        for measure in benchmark.MEASURES
    }
    rows = []
    for name in sets:
        for mode in common.MODES:
            rows.append(
                [
                    name.capitalize(),
                    common.MODE_NAMES[mode],
                    *(
                        report.text(curves[name, mode, measure][epoch - 1], digits(name, measure))
                        for measure in ("rmse", "nll")
                        for epoch in SHOWN
                    ),
                ]
            )
    report.show(
        report.Table(
            "epochs",
            "Passes over the data: one hidden layer of 50",
            (
                "set",
                "mode",
                *(f"{measure} {epoch}" for measure in ("RMSE", "NLL") for epoch in SHOWN),
            ),
            rows,
            f"{options.seeds} random splits. The paper shows curves; its tables give "
            "passes 1 and 10.",
        ),
        options,
    )
    plt = figures.plots()
    if plt is None:
        return
    panels = {}
    for name in sets:
        for measure, paper in (("rmse", published.RMSE), ("nll", published.NLL)):
            lines = {
                "paper as printed": Line((1, 10), [paper[name]["KBNN1"], paper[name]["KBNN10"]])
            }
            for mode in common.MODES:
                lines[common.MODE_NAMES[mode]] = Line(
                    range(1, EPOCHS + 1), curves[name, mode, measure]
                )
            panels[name, measure] = lines
    small_multiples.draw(
        plt,
        panels,
        "passes over the data",
        (1, 5, 10, 15, 20),
        "epochs",
        f"Twenty passes; bars: sd over {options.seeds} splits",
        options,
        nll_top=10.0,
    )


if __name__ == "__main__":
    main(parse(__doc__))
