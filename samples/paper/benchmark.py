"""One UCI run: learn a split pass by pass and measure after each of them."""

import time

from samples.paper import common, data, learners
from samples.paper.options import Options
from samples.paper.runs import Case, Result, gather

MEASURES = ("rmse", "nll", "coverage", "seconds")


def curves(case: Case, options: Options) -> Result:
    """RMSE, NLL and coverage on the test rows and seconds of learning so far, after each pass.

    The seconds are processor time: learning takes one thread, and others may be busy beside it.
    """
    part = data.split(options.data, str(case["set"]), int(str(case["seed"])))
    seed, hidden = int(str(case["seed"])), case["hidden"]
    assert isinstance(hidden, list)
    mode: common.Mode = "paper" if case["mode"] == "paper" else "default"
    learner = learners.begin(mode, tuple(hidden), part.x, part.y, seed)
    result: Result = {name: [] for name in MEASURES}
    seconds, start = 0.0, time.process_time()
    for trained in common.passes(learner, part.x, part.y, int(str(case["epochs"]))):
        seconds += time.process_time() - start
        answer = trained.ask(part.x_test)
        result["rmse"].append(common.rmse(answer, part.y_test))
        result["nll"].append(common.nll(answer.mean, answer.var, part.y_test))
        result["coverage"].append(common.coverage(answer, part.y_test))
        result["seconds"].append(seconds)
        start = time.process_time()
    return result


Run = tuple[str, str, tuple[int, ...]]
"""A data set, a mode, and the widths of the hidden layers."""


def run(runs: list[Run], epochs: int, options: Options, title: str) -> dict[Run, list[Result]]:
    """The curves of every run, one per seed."""
    wanted = [(one, seed) for one in runs for seed in range(options.seeds)]
    cases: list[Case] = [
        {"set": name, "mode": mode, "hidden": list(hidden), "seed": seed, "epochs": epochs}
        for (name, mode, hidden), seed in wanted
    ]
    found: dict[Run, list[Result]] = {one: [] for one in runs}
    for (one, _), result in zip(wanted, gather(curves, cases, options, title), strict=True):
        found[one].append(result)
    return found
