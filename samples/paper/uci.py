"""The UCI tables: RMSE, NLL and time after one and after ten passes, one hidden layer of 50.

Run: python -m samples.paper.uci --data DIR
"""

from typing import Any

import numpy as np

from samples.paper import benchmark, common, data, figures, published, report
from samples.paper.options import Options, parse
from samples.paper.published import Figure

HIDDEN = (50,)
EPOCHS = (1, 10)
Found = dict[tuple[str, str, str, int], Figure]


def main(options: Options) -> None:
    """Run all sets, print the paper's tables with ours beside them, draw the comparison."""
    runs: list[benchmark.Run] = [
        (name, mode, HIDDEN) for name in reversed(data.SETS) for mode in common.MODES
    ]
    results = benchmark.run(runs, max(EPOCHS), options, "UCI sets")
    found: Found = {
        (name, mode, measure, epochs): report.summary([one[measure][epochs - 1] for one in several])
        for (name, mode, _), several in results.items()
        for measure in benchmark.MEASURES
        for epochs in EPOCHS
    }
    for epochs in EPOCHS:
        report.show(against_paper(found, epochs, options), options)
    report.show(against_others(found, options), options)
    report.show(times(found), options)
    plt = figures.plots()
    if plt is not None:
        draw(plt, found, options)


def digits(name: str, measure: str) -> int:
    """Naval's target has a standard deviation of 0.015: its errors need more decimals."""
    return 5 if (name, measure) == ("naval", "rmse") else 3


def against_paper(found: Found, epochs: int, options: Options) -> report.Table:
    """The paper's KBNN, its algorithm as we run it, and kbnn as it comes."""
    method = f"KBNN{epochs}"
    rows = []
    lower, clear = {"rmse": 0, "nll": 0}, {"rmse": 0, "nll": 0}
    for name in data.SETS:
        row = [name.capitalize()]
        for measure, paper in (("rmse", published.RMSE), ("nll", published.NLL)):
            ours = found[name, "default", measure, epochs]
            theirs = paper[name][method]
            row += [
                report.text(theirs, digits(name, measure)),
                *(
                    report.text(found[name, mode, measure, epochs], digits(name, measure))
                    for mode in common.MODES
                ),
                report.verdict(ours, theirs),
            ]
            lower[measure] += ours.mean < theirs.mean
            clear[measure] += report.verdict(ours, theirs) == "better"
        rows.append([*row, f"{found[name, 'default', 'coverage', epochs].mean:.0f} %"])
    count = len(data.SETS)
    return report.Table(
        f"uci_{epochs}",
        f"UCI, {epochs} pass{'es' if epochs > 1 else ''}, one hidden layer of 50",
        (
            "set",
            "RMSE: paper",
            "paper mode",
            "kbnn",
            "",
            "NLL: paper",
            "paper mode",
            "kbnn",
            "",
            "in 90 % band",
        ),
        rows,
        f"kbnn against the paper: mean RMSE lower on {lower['rmse']} of {count} sets (beyond both "
        f"spreads on {clear['rmse']}), NLL on {lower['nll']} (on {clear['nll']}). Ours: mean ± sd "
        f"over {options.seeds} random splits 90/10; even = within the two spreads.",
    )


def against_others(found: Found, options: Options) -> report.Table:
    """Ten passes of kbnn beside the other methods of the paper's tables."""
    rows = []
    for name in data.SETS:
        row = [name.capitalize()]
        for measure, paper in (("rmse", published.RMSE), ("nll", published.NLL)):
            row += [
                report.text(paper[name].get(method), digits(name, measure))
                for method in ("SVI", "MCMC", "PBP")
            ]
            row += [report.text(found[name, "default", measure, 10], digits(name, measure))]
        rows.append(row)
    return report.Table(
        "uci_others",
        "UCI, other methods as the paper measured them, and kbnn after ten passes",
        ("set", "RMSE: SVI", "MCMC", "PBP", "kbnn 10", "NLL: SVI", "MCMC", "PBP", "kbnn 10"),
        rows,
        f"SVI 5,000 passes, MCMC 100 NUTS samples, PBP 40 passes. Ours: {options.seeds} splits.",
    )


def times(found: Found) -> report.Table:
    """Seconds of training."""
    rows = [
        [
            name.capitalize(),
            f"{published.SIZES[name][0]:,}",
            str(published.SIZES[name][1]),
            *(
                f"{published.SECONDS[name][method].mean:.1f}"
                for method in ("SVI", "MCMC", "PBP", "KBNN1", "KBNN10")
            ),
            *(
                f"{found[name, mode, 'seconds', epochs].mean:.2f}"
                for mode in common.MODES
                for epochs in EPOCHS
            ),
        ]
        for name in data.SETS
    ]
    return report.Table(
        "uci_seconds",
        "UCI, training time in seconds",
        (
            "set",
            "rows",
            "inputs",
            "paper: SVI",
            "MCMC",
            "PBP",
            "KBNN 1",
            "KBNN 10",
            "paper mode 1",
            "paper mode 10",
            "kbnn 1",
            "kbnn 10",
        ),
        rows,
        "Ours: processor time of one thread. The paper's times are from another machine (Intel "
        "i7-8850H, PyTorch).",
    )


def draw(plt: Any, found: Found, options: Options) -> None:
    """Ours relative to the paper's KBNN after as many passes: left of the line is better."""
    figure, grid = plt.subplots(1, 2, figsize=(10, 4.2), sharey=True)
    place = np.arange(len(data.SETS))[::-1]
    looks = {"paper": (figures.ORANGE, "^"), "default": (figures.BLUE, "o")}
    for shift, (mode, epochs) in zip(
        (0.24, 0.08, -0.08, -0.24), [(m, e) for m in looks for e in EPOCHS], strict=True
    ):
        colour, mark = looks[mode]
        ratio = [
            found[name, mode, "rmse", epochs].mean / published.RMSE[name][f"KBNN{epochs}"].mean
            for name in data.SETS
        ]
        gap = [
            found[name, mode, "nll", epochs].mean - published.NLL[name][f"KBNN{epochs}"].mean
            for name in data.SETS
        ]
        look = {
            "color": colour,
            "marker": mark,
            "ls": "",
            "ms": 6,
            "mfc": colour if epochs == 10 else "white",
            "label": f"{common.MODE_NAMES[mode]}, {epochs} pass{'es' if epochs > 1 else ''}",
        }
        grid[0].plot(ratio, place + shift, **look)
        grid[1].plot(gap, place + shift, **look)
    grid[0].set(
        xscale="log",
        xlabel="RMSE / RMSE of the paper's KBNN, as many passes",
        yticks=place,
        yticklabels=[name.capitalize() for name in data.SETS],
    )
    grid[1].set(xlabel="NLL - NLL of the paper's KBNN (nats per row)")
    grid[1].set_xscale("symlog", linthresh=1.0)
    for axes, level, ticks in zip(
        grid,
        (1.0, 0.0),
        ((0.01, 0.03, 0.1, 0.3, 1, 3), (-10, -3, -1, -0.5, 0, 0.5, 1, 3, 10, 30)),
        strict=True,
    ):
        axes.axvline(level, color=figures.BLACK, lw=1)
        low, high = axes.get_xlim()
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlim(low, 1.5 * high if level == 0.0 else high)
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    figure.suptitle("UCI sets: left of the line is better than the paper")
    figures.save(plt, figure, options, "uci")


if __name__ == "__main__":
    main(parse(__doc__))
