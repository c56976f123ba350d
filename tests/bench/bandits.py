"""Thompson sampling with draws of the function, against epsilon-greedy with the same model.

    python -m tests.bench.bandits [--repeats 20]

Two tasks. Made: five arms and four inputs, the reward of an arm is a curved function of the inputs;
2,000 steps, and the regret of the first 600 is printed too. Real: the rows of scikit-learn's breast
cancer table, each once; to act gains 1 if the tumour is benign and loses 1 if not, not to act gains
nothing, and the label is seen only after acting. The first rows are random in both policies. Exits
with 1 if the mean regret is not below that of epsilon-greedy by two standard errors.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from sklearn.datasets import load_breast_cancer

from kbnn.array_types import FloatArray
from kbnn.model.function_posterior import FunctionSampler
from kbnn.model.model import OnlineModel
from kbnn.model.settings import Settings
from tests.bench.data import block, error, schema

EPSILON = 0.1
RANDOM_STEPS = 40
ARMS, INPUTS = 5, 4
MADE_STEPS, EARLY_STEPS = 2000, 600
REAL_STEPS = 569


class Task(NamedTuple):
    """A bandit: encoded rows of the arms, the expected gain of each, and how labels are seen."""

    arms: Callable[[int], FloatArray]  # (arms, inputs) at a step
    gains: Callable[[int], FloatArray]  # (arms,) expected gain
    label: Callable[[int, int], float]  # what is learned after a choice
    make_model: Callable[[], OnlineModel]
    value: Callable[[FloatArray], FloatArray]  # gain of what the model predicts
    idle: bool  # whether there is an arm without a row, which gains nothing


def made_task(seed: int, steps: int) -> Task:
    """Five arms whose rewards are sines of a random direction."""
    rng = np.random.default_rng(seed)
    context = rng.standard_normal((steps, INPUTS))
    direction, phase = rng.standard_normal((ARMS, INPUTS)), rng.random(ARMS) * 6.0
    gain = np.sin(context @ direction.T * 0.7 + phase)
    noise = 0.3 * rng.standard_normal((steps, ARMS))
    return Task(
        lambda t: np.column_stack((np.tile(context[t], (ARMS, 1)), np.eye(ARMS))),
        lambda t: gain[t],
        lambda t, arm: float(gain[t, arm] + noise[t, arm]),
        lambda: OnlineModel(Settings(seed=seed, drift=False), schema(INPUTS + ARMS)),
        lambda predicted: predicted[:, 0],
        False,
    )


def real_task(seed: int, steps: int) -> Task:
    """To act or not on a tumour."""
    x, y = load_breast_cancer(return_X_y=True)
    rng = np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(len(x)) for _ in range(steps // len(x) + 1)])
    inputs = x.shape[1]
    return Task(
        lambda t: x[order[t]][None],
        lambda t: np.array([2.0 * y[order[t]] - 1.0]),
        lambda t, arm: float(y[order[t]]),
        lambda: OnlineModel(Settings(seed=seed, drift=False), schema(inputs, classes=2)),
        lambda predicted: 2.0 * predicted[:, 1] - 1.0,
        True,
    )


def run(task: Task, thompson: bool, seed: int, steps: int) -> FloatArray:
    """Return the regret of every step."""
    rng, model, regret = np.random.default_rng(seed), task.make_model(), np.zeros(steps)
    learned = 0
    for t in range(steps):
        arms, gains = task.arms(t), task.gains(t)
        choices = len(arms) + task.idle
        rows = block(arms, np.zeros(len(arms)))
        if learned < RANDOM_STEPS or (not thompson and rng.random() < EPSILON):
            arm = int(rng.integers(choices))
        else:
            if thompson:
                predicted = FunctionSampler(model, 1, seed=steps * seed + t).draw(rows)[0]
            else:
                forecast = model.predict(rows)
                predicted = forecast.probability if model.task.labels else forecast.mean
            value = task.value(predicted)
            arm = int(np.argmax(np.append(value, 0.0) if task.idle else value))
        gain = float(gains[arm]) if arm < len(arms) else 0.0
        regret[t] = float(max(np.max(gains), 0.0 if task.idle else -np.inf)) - gain
        if arm < len(arms):
            learned += 1
            model.learn(block(arms[arm : arm + 1], np.array([task.label(t, arm)]), first=learned))
    return regret


def compare(name: str, ours: list[float], theirs: list[float], *, required: bool) -> bool:
    """Print the mean regrets and their difference; return whether a required one is missed."""
    gap = [a - b for a, b in zip(ours, theirs, strict=True)]
    good = float(np.mean(gap)) + 2.0 * error(gap) < 0.0
    mark = ("ok  " if good else "MISS") if required else "    "
    print(
        f"{mark} {name}: regret a step {np.mean(ours):.4f}, epsilon-greedy {np.mean(theirs):.4f}, "
        f"difference {np.mean(gap):+.4f} +- {error(gap):.4f}",
        flush=True,
    )
    return required and not good


def main() -> int:
    """Run both policies on both tasks, and print a line for each task and length."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    missed = 0
    tasks = (
        ("made", made_task, MADE_STEPS, EARLY_STEPS),
        ("breast cancer", real_task, REAL_STEPS, REAL_STEPS),
    )
    for name, make, steps, early in tasks:
        found = {
            thompson: [run(make(seed, steps), thompson, seed, steps) for seed in range(repeats)]
            for thompson in (True, False)
        }
        for length in sorted({early, steps}):
            ours, theirs = (
                [float(np.mean(one[:length])) for one in found[thompson]]
                for thompson in (True, False)
            )
            label = f"{name}, {length} steps"
            missed += compare(label, ours, theirs, required=length == steps)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
