"""Networks: every activation, structure, kind of label and guard, learned, rehearsed and asked."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core import kernel
from kbnn.core.belief import open_belief
from kbnn.core.config import NO_LIMIT, Config
from kbnn.core.input_moments import leading_directions
from kbnn.core.jacobian import compute_sensitivity, compute_slopes, function_var
from kbnn.core.kernel import learn, predict, predict_parallel
from kbnn.core.reference import Records
from kbnn.core.state import ARRAYS, State, init
from tests.pinned.record import Case, bells, grouped, uniform

ROWS = 20
ACTIVATIONS = ("relu", "linear", "leaky_relu", "max(0.1,2)", "sigmoid", "tanh", "probit", "step")
LABELS: dict[str, dict[str, Any]] = {
    "gaussian": {},
    "fixed": {"noise": 0.05},
    "two": {"outputs": 2},
    "bernoulli": {"observation": "bernoulli"},
    "categorical": {"observation": "categorical", "outputs": 3},
    "sigmoid": {"observation": "sigmoid", "noise": 0.1},
    "count": {"observation": "count"},
    "counts": {"observation": "count", "outputs": 2},
    "amount": {"observation": "amount", "outputs": 2},
    "amounts": {"observation": "amount", "outputs": 4},
}
Rows = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
Change = Callable[[State], State]


def rows_of(config: Config, rows: int = ROWS, seed: int = 1) -> Rows:
    """x, y, x_var and weight: a smooth function, gaps, errors of inputs, some weights."""
    x = bells(rows, config.inputs, seed)
    mix = bells(config.inputs, config.outputs, 7)
    signal = np.sin(x @ mix) + 0.2 * bells(rows, config.outputs, seed + 1)
    y = signal
    if config.observation == "count":
        y = np.floor(np.exp(1.0 + signal))
    elif config.observation == "amount":
        much, whether = np.split(signal, 2, axis=1)
        y = np.where(whether > -0.2, much, -np.inf)
    elif config.observation == "categorical":
        y = np.argmax(signal, axis=1)[:, None].astype(np.float64)
    elif config.classes:
        y = (signal[:, :1] > 0.0).astype(np.float64)
    chance = uniform(rows, config.inputs, seed + 2)
    x_var = np.where(chance < 0.1, 0.3, 0.0)
    x = np.where(chance > 0.93, np.nan, x)
    weight = np.where(np.arange(rows) % 5 == 3, 0.4, 1.0) + (np.arange(rows) % 7 == 2)
    return x, y, x_var, weight


def directions(config: Config) -> FloatArray | None:
    """Of rows whose columns have sizes of their own: no two directions are alike."""
    if not config.directions:
        return None
    return leading_directions(
        bells(40, config.inputs, 9) * 0.7 ** np.arange(config.inputs), config.directions
    )


def learned(
    config: Config, change: Change | None = None, rows: Rows | None = None, **options: Any
) -> dict[str, Any]:
    """A network's life: rows, a second pass, rehearsals, what it says then, and its belief."""
    start = init(config, 3, directions=directions(config), **options)
    x, y, x_var, weight = rows_of(config) if rows is None else rows
    y = y.copy()
    y[7] = np.nan
    session = kernel.open_session(change(start) if change else start)
    made = [session.learn(x, y, x_var, weight)]
    session.learn(x[:5], y[:5], x_var[:5], weight[:5], again=True)
    some = weight[8:12] * np.array([1.0, 0.0, 1.0, 1.0])  # one that cannot be learned
    session.replay(x[8:12], y[8:12], x_var[8:12], some)
    session.replay(x[3:6], y[3:6], means_alone=True)
    made.append(session.learn(x[12:15], y[12:15]))
    made.append(session.predict(x[:5], x_var[:5]))
    records = Records(*(np.concatenate(parts) for parts in zip(*made, strict=True)))
    state = {f"belief/{name}": part for name, part in belief(session.state()).items()}
    return grouped({**told("said", records), **state})


def told(prefix: str, records: Records) -> dict[str, Any]:
    """What was predicted."""
    return {
        f"{prefix}/{name}": part for name, part in records._asdict().items() if np.size(part) > 0
    }


def belief(state: State) -> dict[str, Any]:
    """What is believed."""
    kept = {name: getattr(state, name) for name in ARRAYS}
    return {
        name: part.reshape(1, -1) if name in ("counts", "noise", "surprise") else part.ravel()
        for name, part in kept.items()
        if part.size
    }


def edge(config: Config) -> Rows:
    """Rows at the edge of what is believed: far inputs, wild labels and weights."""
    x, y, x_var, weight = (part.copy() for part in rows_of(config, 30))
    x[:6, 0] = [900.0, 1100.0, 9.0, -9.0, 0.0, np.nan]
    x_var[6:9, 0] = [1e-13, 0.5, np.inf]
    if config.observation == "count":
        y[9:20, 0] = [0.0, 1.0, 40.0, 1e3, 1e7, 1e15, 8e15, 1.0e16, 0.5, -1.0, 3.0]
    elif not config.classes:
        y[9:20, 0] = [3.0, -6.0, 30.0, -1e3, 1e7, 0.9e100, 1.1e100, 8.0, 8.0, -8.0, 8.0]
        y[21, 0] = np.inf
    if not config.robust and not config.classes:
        y = np.where(np.isfinite(y), np.clip(y, -50.0, 50.0), y)
    weight[20:28] = [0.9e-300, 1.1e-300, 0.9e100, 1.1e100, 0.5, 4.0, 0.0, 0.01]
    x[28, 0] = np.inf
    return x, y, x_var, weight


def sunk(state: State) -> State:
    """Certain of its weights and of its noise."""
    return state._replace(
        cov=1e-14 * state.cov,
        noise=state.noise * np.array([1.0, 1e-13]),
        head_cov=1e-13 * state.head_cov,
    )


def far(level: float, state: State) -> State:
    """The noise head at one end of its range, and unsure of itself."""
    head = state.head_mean.copy()
    head[:, 0] = level
    return state._replace(head_mean=head, head_cov=50.0 * state.head_cov)


def alarmed(state: State) -> State:
    """A noise belief of long memory, just before an alarm."""
    return state._replace(
        noise=50.0 * state.noise, surprise=np.array([state.config.kind.detector.threshold - 1.0])
    )


def sure(state: State) -> State:
    """Weights far from 0."""
    size = 3.0 if state.config.observation == "count" else 30.0
    return state._replace(mean=np.where(np.arange(len(state.mean)) % 2, size, -size))


def low_floor(state: State) -> State:
    """A prior so wide that its floor lies where rows bring variances."""
    return state._replace(prior_var=1e11 * state.prior_var)


def loud(state: State) -> State:
    """Large weights that are well known: units above ask for more than there is."""
    return state._replace(mean=3.0 * state.mean, cov=0.05 * state.cov)


def scaled(means: float, cov: float, noise: tuple[float, float], state: State) -> State:
    """Everything stretched."""
    return state._replace(
        mean=means * state.mean,
        cov=cov * state.cov,
        prior_var=cov * state.prior_var,
        noise=np.array([noise]) if len(state.noise) else state.noise,
    )


def asked() -> dict[str, Any]:
    """The pure functions, derivatives, and what inputs do."""
    found: dict[str, Any] = {}
    kinds: dict[str, dict[str, Any]] = {"group": {}, "wide": {"directions": 2}, "full": {}}
    for covariance, more in kinds.items():
        for hidden, activation in (((), "relu"), ((5,), "tanh"), ((4, 3), "relu,tanh")):
            shape: dict[str, Any] = {"hidden": hidden, "activation": activation, **more}
            config = Config(inputs=4, covariance=covariance, **shape)  # type: ignore[arg-type]
            start = init(config, 5, directions=directions(config))
            x, y, x_var, weight = rows_of(config)
            state, _ = learn(start, x, y, x_var=x_var, weight=weight)
            x = x.copy()
            x[3, 1] = 9.5
            name = f"{covariance}{len(hidden)}"
            found |= told(name, predict(state, x[:12], x_var=x_var[:12]))
            found |= told(f"{name}.open", predict_parallel(kernel.open_session(state), x[:9]))
            moved = compute_sensitivity(state, x)
            found |= {f"{name}.{part}": value for part, value in moved._asdict().items()}
            opened = open_belief(state)
            made = compute_slopes(opened, x[:9])
            found |= {f"{name}.{part}": value.ravel() for part, value in made._asdict().items()}
            found[f"{name}.function_var"] = function_var(opened, made.weights)
    return found


def many() -> dict[str, Any]:
    """More rows than one thread is asked for."""
    config = Config(inputs=2, hidden=(3,))
    state, _ = learn(init(config, 1), *rows_of(config)[:2])
    x = bells(600, 2, 4)
    return told("said", predict(state, x, x_var=np.where(x > 1.8, 0.2, 0.0)))


def begun() -> dict[str, Any]:
    """Beliefs before the first row."""
    found: dict[str, Any] = {}
    for name, options in {
        "plain": {},
        "he": {"prior_variance": "he"},
        "glorot": {"prior_variance": "glorot"},
        "number": {"prior_variance": 0.7},
        "scales": {"mean_scale": 2.0, "sd_scale": 0.5},
        "shifted": {"output_mean": np.array([0.5])},
    }.items():
        state = init(Config(inputs=3, hidden=(4, 2)), 2, **options)  # type: ignore[arg-type]
        found |= {f"{name}/{part}": value for part, value in belief(state).items()}
    for label, options in LABELS.items():
        state = init(Config(inputs=2, hidden=(3,), **options), 4)
        found |= {f"{label}/{part}": value for part, value in belief(state).items()}
    three = Config(inputs=2, hidden=(3,), observation="categorical", outputs=3)
    for rule in ("he", 0.7):
        state = init(three, 4, prior_variance=rule)
        found |= {f"classes {rule}/{part}": value for part, value in belief(state).items()}
    wide = init(Config(inputs=4, hidden=(3,), covariance="wide", directions=2), 1)
    found |= {f"wide/{part}": value for part, value in belief(wide).items()}
    return grouped(found)


def case(change: Change | None = None, at_edge: bool = False, **options: Any) -> Case:
    """A network of these options."""
    config = Config(**{"inputs": 3, "hidden": (6,), **options})
    rows = edge(config) if at_edge else None
    return Case(partial(learned, config, change, rows), engines=True)


def cases() -> dict[str, Case]:
    """All of them."""
    made: dict[str, Case] = {
        "asked": Case(asked, engines=True),
        "many": Case(many, engines=True),
        "begun": Case(begun),
    }
    for activation in ACTIVATIONS:
        for covariance in ("paper", "neuron", "group"):
            made[f"{activation} {covariance}"] = case(activation=activation, covariance=covariance)
    for label, options in LABELS.items():
        for covariance in ("paper", "neuron", "group", "full", "wide"):
            more: dict[str, Any] = {}
            if covariance == "wide":
                more = {"directions": 2, "inputs": 5}
            made[f"{label} by {covariance}"] = case(covariance=covariance, **more, **options)
        plain = {"robust": False, "drift": False, **options}
        made[f"{label} of two layers"] = case(hidden=(5, 4), activation="tanh,relu", **options)
        made[f"{label} of no layer"] = case(hidden=(), **options)
        made[f"{label} at the edge"] = case(at_edge=True, **options)
        made[f"{label} unguarded"] = case(at_edge=True, **plain)
        made[f"{label} alarmed"] = case(alarmed, **options)
        made[f"{label} sure"] = case(sure, **options)
        made[f"{label} sunk"] = case(sunk, **options)._replace(close=1e-6)
    made["level"] = case(noise_head=False)
    made["level alarmed"] = case(alarmed, noise_head=False)
    for name, level in (("low", -20.0), ("high", 20.0), ("raised", 2.5)):
        made[f"head {name}"] = case(partial(far, level), outputs=2)
    for covariance in ("paper", "neuron", "full", "wide"):
        more = {"directions": 2, "inputs": 5} if covariance == "wide" else {}
        made[f"alarmed {covariance}"] = case(alarmed, covariance=covariance, **more)
        made[f"floor {covariance}"] = case(low_floor, covariance=covariance, **more)
        made[f"edge {covariance}"] = case(at_edge=True, covariance=covariance, **more)
        made[f"sunk {covariance}"] = case(sunk, covariance=covariance, **more)._replace(close=1e-6)
    for name, means, cov, noise in (
        ("wide", 0.5, 10.0, (3.0, 0.3)),
        ("narrow", 1.0, 1e-7, (3.0, 0.3)),
        ("far", 40.0, 0.01, (3.0, 0.3)),
        ("even", 2.0, 1.0, (3.0, 1e-6)),
        ("loose", 2.0, 1.0, (3.0, 600.0)),
    ):
        made[f"count stretched {name}"] = case(
            partial(scaled, means, cov, noise), observation="count"
        )
    for activation in ("sigmoid", "tanh", "relu,tanh"):
        for observation in ("gaussian", "sigmoid"):
            made[f"printed {activation} {observation}"] = case(
                hidden=(6, 4),
                activation=activation,
                covariance="paper",
                observation=observation,
                noise=0.01,
                hidden_noise=0.01,
                printed_variance=True,
                repeats=0.0,
                input_limit=NO_LIMIT,
            )
    made["exact labels"] = case(covariance="paper", noise=0.0, robust=False, drift=False)
    made["bounded"] = case(
        loud, hidden=(5, 4), outputs=6, covariance="paper", noise=1e-6, robust=False
    )
    made["flat"] = case(
        lambda state: state._replace(mean=0.0 * state.mean, cov=1e-290 * state.cov),
        covariance="paper",
        activation="sigmoid",
        noise=0.1,
    )
    for spread in (0.0, 1.0):
        made[f"spread {spread:g}"] = case(activation_spread=spread, activation="tanh")
    for repeats in (0.0, 0.3, 2.0):
        made[f"repeats {repeats:g}"] = case(repeats=repeats)
    made["limit"] = case(input_limit=0.8)
    made["one unit a group"] = case(group_size=1)
    made["uneven groups"] = case(hidden=(23,), inputs=2)
    made["small groups"] = case(hidden=(5,), inputs=70)
    made["no inputs"] = case(inputs=0)
    made["wide two layers"] = case(
        inputs=6, hidden=(4, 3), covariance="wide", directions=3, outputs=2
    )
    made["wide no layer"] = case(inputs=6, hidden=(), covariance="wide", directions=3)
    return made
