"""The compiled kernel against its numpy twin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest

from kbnn import Config, State, init
from kbnn.core import kernel, likelihoods, reference
from kbnn.core.activations import ACTIVATIONS
from kbnn.core.config import NO_LIMIT, Covariance
from kbnn.core.state import COUNT
from kbnn.errors import UsageError
from tests.networks import Stream, distance, pairwise, record_distance, stream

_kernel = pytest.importorskip("kbnn.core._kernel", reason="built without a compiler")

OBSERVATIONS: dict[str, dict[str, Any]] = {
    "fixed noise": {"noise": 0.05},
    "learned noise": {"noise_head": False},
    "noise head": {},
    "two targets": {"outputs": 2},
    "two classes": {"observation": "bernoulli"},
    "three classes": {"observation": "categorical", "outputs": 3},
    "sigmoid": {"observation": "sigmoid", "noise": 0.1},
    "count": {"observation": "count"},
    "two counts": {"observation": "count", "outputs": 2},
    "amount": {"observation": "amount", "outputs": 2},
    "two amounts": {"observation": "amount", "outputs": 4},
}
FACTORS: dict[str, list[Any]] = {
    "hidden": [(), (11,), (5, 9), (4, 3, 2)],
    "activation": ["relu", "max(0.1,2)", "tanh"],
    "covariance": ["paper", "neuron", "group", "full"],
    "observation": [
        "learned noise",
        "noise head",
        "two targets",
        "two classes",
        "three classes",
        "two counts",
        "two amounts",
    ],
    "uncertain": [(0.0, 0.0), (0.1, 0.0), (0.1, 0.2)],
    "guards": [True, False],
}
GRID = FACTORS | {
    "observation": list(OBSERVATIONS),
    "hidden": [(), (9,), (5, 4)],
    "activation": [*ACTIVATIONS, "max(0.1,2)"],
    "uncertain": [(0.1, 0.2)],
    "guards": [True],
}


def test_every_kind_of_label_is_compared() -> None:
    compared = {options.get("observation", "gaussian") for options in OBSERVATIONS.values()}
    assert compared == set(likelihoods.LIKELIHOODS)


def whole_grid() -> list[dict[str, Any]]:
    """Every combination, activations once where no hidden layer uses them."""
    levels = [dict(zip(GRID, values, strict=True)) for values in product(*GRID.values())]
    return [level for level in levels if level["hidden"] or level["activation"] == "linear"]


def available() -> list[str]:
    return [name for name in ("avx512", "avx2", "portable") if _kernel.use_instruction_set(name)]


@pytest.fixture(autouse=True)
def best_instructions() -> Iterator[None]:
    yield
    _kernel.use_instruction_set("")


def own_error(start: State, data: Stream) -> float:
    """What a change of 1e-15 in the first weights makes of the twin's own results.

    Some beliefs have no ninth digit: linear units in one joint block can be exchanged for any
    mixture of them, and a step is all or nothing. No other code can come closer than this.
    """
    nudge = 1e-15 * np.random.default_rng(0).standard_normal(len(start.mean))
    nudged = start._replace(mean=start.mean * (1.0 + nudge))
    one, records = reference.learn_arrays(start, *data)
    other, other_records = reference.learn_arrays(nudged, *data)
    return max(distance(other, one), record_distance(other_records, records))


def comparable(start: State, data: Stream) -> tuple[Stream, float]:
    """The longest beginning of a stream that leaves digits to compare, and how close to come."""
    for count in (2000, 500, 120, 30):
        part = data.part(slice(count))
        limit = max(1e-9, 100.0 * own_error(start, part))
        if limit <= 1e-6:
            return part, limit
    raise AssertionError("nothing to compare")


def check(level: dict[str, Any], count: int, ill_conditioned: bool = False) -> None:
    config = Config(
        inputs=5,
        hidden=level["hidden"],
        activation=level["activation"],
        covariance=level["covariance"],
        group_size=4,
        robust=level["guards"],
        drift=level["guards"],
        **OBSERVATIONS[level["observation"]],
    )
    missing, noisy = level["uncertain"]
    data = stream(config, count, seed=3, missing=missing, noisy=noisy)
    start = init(config, 7)
    limit = 1e-9
    if ill_conditioned:
        data, limit = comparable(start, data)
    wanted, wanted_records = reference.learn_arrays(start, *data)
    for instructions in available():
        _kernel.use_instruction_set(instructions)
        got, records = kernel.learn_arrays(start, *data)
        assert distance(got, wanted) <= limit, instructions
        assert record_distance(records, wanted_records) <= limit, instructions
        assert np.array_equal(got.counts, wanted.counts), instructions
        predicted = kernel.predict_arrays(wanted, data.x[:50], data.x_var[:50])
        by_twin = reference.predict_arrays(wanted, data.x[:50], data.x_var[:50])
        assert record_distance(predicted, by_twin) <= limit, instructions


def label(level: Mapping[str, Any]) -> str:
    return "-".join(str(value) for value in level.values())


@pytest.mark.thinned(2)
@pytest.mark.parametrize("level", pairwise(FACTORS), ids=label)
def test_kernel_equals_the_twin_after_hundreds_of_rows(level: dict[str, Any]) -> None:
    check(level, 200)


@pytest.mark.slow
@pytest.mark.parametrize("level", whole_grid(), ids=label)
def test_kernel_equals_the_twin_on_the_whole_grid_after_two_thousand_rows(
    level: dict[str, Any],
) -> None:
    check(level, 2000, ill_conditioned=level["activation"] in ("linear", "step"))


@pytest.mark.parametrize("activation", [a for a in ACTIVATIONS if a not in FACTORS["activation"]])
@pytest.mark.parametrize("covariance", ["paper", "neuron", "group"])
def test_every_other_activation_agrees(activation: str, covariance: str) -> None:
    check(
        {
            "hidden": (9,),
            "activation": activation,
            "covariance": covariance,
            "observation": "noise head",
            "uncertain": (0.1, 0.0),
            "guards": True,
        },
        300,
    )


@pytest.mark.parametrize("observation", ["fixed noise", "sigmoid"])
@pytest.mark.parametrize("covariance", ["paper", "neuron", "group"])
def test_every_other_observation_agrees(observation: str, covariance: str) -> None:
    check(
        {
            "hidden": (9,),
            "activation": "relu",
            "covariance": covariance,
            "uncertain": (0.1, 0.1),
            "observation": observation,
            "guards": False,
        },
        300,
    )


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_the_activations_share_of_the_variance_is_the_same(spread: float) -> None:
    config = Config(inputs=4, hidden=(6, 5), activation_spread=spread)
    data = stream(config, 300)
    wanted, _ = reference.learn_arrays(init(config), *data)
    got, _ = kernel.learn_arrays(init(config), data.x, data.y)
    assert distance(got, wanted) <= 1e-9


@pytest.mark.parametrize("covariance", ["paper", "neuron", "group", "full"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_variances_stop_at_the_same_floor(covariance: Covariance, outputs: int) -> None:
    """A prior so wide that its floor lies where the stream has brought most variances."""
    config = Config(inputs=3, hidden=(6,), covariance=covariance, outputs=outputs, drift=False)
    start = init(config)
    start = start._replace(prior_var=1e11 * start.prior_var)
    data = stream(config, 300)
    wanted, _ = reference.learn_arrays(start, *data)
    got, _ = kernel.learn_arrays(start, data.x, data.y)
    assert wanted.counts[COUNT.repairs] > 10
    assert np.array_equal(got.counts, wanted.counts)
    assert distance(got, wanted) <= 1e-9


@pytest.mark.thinned(3)
@pytest.mark.parametrize("observation", ["gaussian", "sigmoid"])
@pytest.mark.parametrize(
    "activation", ["sigmoid", "tanh,probit", "relu,tanh", "sigmoid,max(0.1,2)"]
)
def test_the_papers_own_options_agree(activation: str, observation: str) -> None:
    config = Config(
        inputs=3,
        hidden=(6, 4),
        activation=activation,
        covariance="paper",
        observation=observation,
        noise=0.01,
        hidden_noise=0.01,
        printed_variance=True,
        repeats=0.0,
        input_limit=NO_LIMIT,
        robust=False,
        drift=False,
    )
    data = stream(config, 160)
    data.x[::7] *= 20.0
    data.x[5] *= 2000.0
    for instructions in available():
        _kernel.use_instruction_set(instructions)
        wanted = got = init(config)
        for again in (False, True):
            wanted, by_twin = reference.learn_arrays(wanted, *data, again=again)
            got, records = kernel.learn_arrays(got, *data, again=again)
            assert distance(got, wanted) <= 1e-9
            assert record_distance(records, by_twin) <= 1e-9
        assert np.array_equal(got.counts, wanted.counts)
    assert wanted.counts[COUNT.raised] > 0
    assert wanted.counts[COUNT.rows] == 320


def test_what_several_units_ask_too_much_of_is_counted_alike() -> None:
    config = Config(
        inputs=3, hidden=(5, 4), outputs=6, covariance="paper", noise=1e-6, robust=False
    )
    start = init(config, 2)
    start = start._replace(mean=3.0 * start.mean, cov=0.05 * start.cov)
    data = stream(config, 60)
    wanted, _ = reference.learn_arrays(start, *data)
    got, _ = kernel.learn_arrays(start, *data)
    assert wanted.counts[COUNT.bounded] > 10
    assert np.array_equal(got.counts, wanted.counts)


MIXED = {
    "relu,tanh": (5, 9),
    "tanh,relu": (9, 3),
    "sigmoid,step": (6, 11),
    "max(0.1,2),probit,leaky_relu": (4, 3, 5),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("covariance", ["paper", "neuron", "group", "full"])
@pytest.mark.parametrize("activation", MIXED)
def test_an_activation_for_each_layer_agrees(activation: str, covariance: str) -> None:
    check(
        {
            "hidden": MIXED[activation],
            "activation": activation,
            "covariance": covariance,
            "observation": "two targets",
            "uncertain": (0.1, 0.1),
            "guards": True,
        },
        200,
    )


def test_weights_alarms_and_repeated_passes_agree() -> None:
    config = Config(inputs=3, hidden=(12,))
    data = stream(config, 800)
    rng = np.random.default_rng(5)
    weight = rng.choice([0.1, 1.0, 3.0, 10.0], 800)
    y = data.y + np.where(np.arange(800) >= 400, 4.0, 0.0)[:, None]
    one = two = init(config)
    for again in (False, True):
        one, _ = reference.learn_arrays(one, data.x, y, weight=weight, again=again)
        two, _ = kernel.learn_arrays(two, data.x, y, weight=weight, again=again)
    assert one.counts[COUNT.alarms] >= 1
    assert np.array_equal(one.counts, two.counts)
    assert distance(two, one) <= 1e-9


def test_a_label_between_two_classes_counts_as_the_nearer_one() -> None:
    config = Config(inputs=2, hidden=(4,), observation="bernoulli")
    data = stream(config, 200)
    start, _ = kernel.learn_arrays(init(config), data.x, data.y)
    y = np.where(data.y > 0.5, 0.2, 0.8)  # against what was learned: surprising
    wanted, _ = reference.learn_arrays(start, data.x, y)
    got, _ = kernel.learn_arrays(start, data.x, y)
    assert np.array_equal(got.counts, wanted.counts)
    assert distance(got, wanted) <= 1e-9


def test_no_name_is_the_best_instruction_set() -> None:
    best, *_, least = available()
    assert _kernel.use_instruction_set(least)
    assert _kernel.use_instruction_set("")
    assert _kernel.instruction_set() == best


@pytest.mark.parametrize(("inputs", "suited"), [(4, ("avx2", "avx512")), (20, ("avx512",))])
def test_only_small_joint_blocks_may_run_in_vectors_of_four_unless_told_otherwise(
    inputs: int, suited: tuple[str, ...]
) -> None:
    if available()[0] != "avx512":
        pytest.skip("this machine has no vectors of eight")
    config = Config(inputs=inputs, hidden=(20,), covariance="group")
    data = stream(config, 200)
    found = {}
    for name in ("", "avx2", "avx512"):
        assert _kernel.use_instruction_set(name)
        found[name] = kernel.learn_arrays(init(config), data.x, data.y)[0].mean.tobytes()
    assert found["avx2"] != found["avx512"]
    assert found[""] in [found[name] for name in suited]


def test_an_unknown_instruction_set_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KBNN_ENGINE", "mmx")
    with pytest.raises(UsageError, match="this machine offers numpy, portable"):
        kernel.describe_engine()
