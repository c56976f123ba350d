"""Models in the user's units: scales, growth, rehearsal, races, ensembles, lags, late targets."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from kbnn.core import kernel
from kbnn.core.config import Config
from kbnn.core.state import init
from kbnn.data import clock, lags
from kbnn.data.batch import Rows, slice_rows
from kbnn.data.schema import Column, Place, Schema
from kbnn.model import ensemble, recursive_forecast, replay, scaler
from kbnn.model.candidates import compare_target_types, rank_candidates
from kbnn.model.diagnostics import (
    collect_health,
    compute_effects,
    describe_scales,
    list_model_noise,
    rank_features,
)
from kbnn.model.merge import merge_models
from kbnn.model.model import OnlineModel
from kbnn.model.replay import compute_buffer_rows
from kbnn.model.rescale import grow_state, rescale_state
from kbnn.model.scaler import Scale
from kbnn.model.serialize import to_state
from kbnn.model.settings import PRESETS, Settings
from kbnn.targets.prediction import Forecast
from tests.pinned.networks import belief, directions, rows_of
from tests.pinned.record import Case, bells, grouped, parts, table, uniform
from tests.pinned.tasks import task, words

CLOSE = 1e-7
"""Hundreds of rows, many of them learned again and again."""


def schema_of(task: str = "regression", targets: int = 1, **more: Any) -> Schema:
    """Three numbers, a category with two indicators, and targets."""
    names = ["x0", "x1", "x2"]
    kind: Any = "category" if task == "classification" else "number"
    columns = [
        *(Column(name, "number", "feature") for name in names),
        Column("c", "category", "feature", categories=["a", "b"]),
        *(Column(f"y{j}" if targets > 1 else "y", kind, "target") for j in range(targets)),
    ]
    layout = [*(Place(name, None) for name in names), Place("c", "a"), Place("c", "b")]
    return Schema(columns, task, layout=layout, **more)


def rows_for(kind: str, count: int, targets: int = 1, seed: int = 1) -> Rows:
    """Gaps, stated errors, weights, a late category, growing scales, outliers, a change."""
    x = bells(count, 5, seed)
    chance = uniform(count, 5, seed + 1)
    place = np.arange(count)
    x[:, 3] = chance[:, 3] < 0.4
    x[:, 4] = (chance[:, 4] < 0.3) & (place > count // 2)
    signal = np.sin(x[:, :1] + np.arange(targets)) + 0.5 * x[:, 1:2] + x[:, 4:5]
    y = signal + 0.2 * bells(count, targets, seed + 2)
    y = np.where(uniform(count, 1, seed + 3) < 0.02, 6.0 * y, y)
    y[count * 4 // 5 :] *= -1.0
    if kind == "classification":
        y = np.floor(np.clip(y + 1.5, 0.0, np.where(place < count // 3, 1.0, 2.9)[:, None]))
    elif kind == "two":
        y = (y > 0.0).astype(np.float64)
    elif kind == "count":
        y = np.floor(np.exp(0.7 * y + 1.0))
    elif kind == "positive":
        y = np.exp(y)
    elif kind == "amount":
        y = np.where(y < -0.3, 0.0, np.exp(y))
    x[count // 3 :, 1] *= 30.0
    x[:, 2] = np.where(place < 60, 2.5, x[:, 2])
    x[:, :2] = np.where(chance[:, :2] > 0.93, np.nan, x[:, :2])
    x_sd = np.zeros_like(x)
    x_sd[:, 0] = np.where(chance[:, 2] < 0.2, 0.3, 0.0)
    y[9::53] = np.nan
    weight = np.where(place % 5 == 2, 2.0, 1.0) - 0.5 * (place % 7 == 3)
    return Rows(x, y, place + 1, x_sd, weight)


def told(model: OnlineModel, said: dict[str, Forecast], drawn: bool = False) -> dict[str, Any]:
    """What was said, and all that the model is."""
    # u is drawn by a hash of bits (kbnn.distributions.negative_binomial): it is left out.
    drawn = drawn or model.task.name in ("count", "amount")
    found: dict[str, Any] = {}
    for prefix, forecast in said.items():
        for name, part in forecast._asdict().items():
            if part.size and not (drawn and name == "stated"):
                found[f"{prefix}/{name}"] = part
    header, arrays = to_state(model)
    if drawn:
        header["record"] = {}
        arrays = {name: a for name, a in arrays.items() if not name.startswith("record/")}
        arrays = {name: a for name, a in arrays.items() if not name.endswith("stated/tails")}
    header = {name: header[name] for name in ("racers", "lost", "skipped", "let_go", "record")}
    found |= parts("model", header)
    found |= {name: array for name, array in arrays.items() if array.size}
    return grouped(found)


def created(what: str, /, targets: int = 1, **settings: Any) -> OnlineModel:
    """A small model."""
    task = "classification" if what in ("classification", "two") else "regression"
    classes = ["u", "v"] if what == "two" else ["u", "v", "w"] if task == "classification" else []
    schema = schema_of(task, targets, classes=classes)
    return OnlineModel(Settings(**{"hidden": (5,), "rehearse": 0, **settings}), schema)


def life(
    what: str, count: int, /, again: bool = False, targets: int = 1, **settings: Any
) -> dict[str, Any]:
    """A model's life: a stream in blocks, perhaps twice, and what it says of other rows."""
    model = created(what, targets, **settings)
    rows = rows_for(what, count, targets)
    said = {}
    for at, (start, stop) in enumerate(((0, 20), (20, 21), (21, count // 2), (count // 2, count))):
        said[f"learned {at}"] = model.learn(slice_rows(rows, start, stop))
    if again:
        said["again"] = model.learn(slice_rows(rows, 0, count // 2), again=True)
        said["again then"] = model.learn(slice_rows(rows, count // 2, count), again=True)
    said["predicted"] = model.predict(rows_for(what, 12, targets, 20))
    found = told(model, said)
    facts = model.rows_seen, model.rows, model.rejected_rows, list_model_noise(model), model.alarms
    found["facts"] = table(*facts)
    return found


def refuted() -> dict[str, Any]:
    """Kinds of target that a later value cannot have: while kinds race, and after."""
    found: dict[str, Any] = {}
    for what, late, count in (
        ("positive", 0.0, 60),
        ("positive", -2.0, 60),
        ("count", 1.5, 60),
        ("count", 2.5, 500),
        ("positive", -1.0, 500),
    ):
        model = created(what)
        rows = rows_for(what, count + 20)
        y = np.where(np.isnan(rows.y), rows.y, np.maximum(rows.y, 0.001 * (what == "positive")))
        y[count, 0] = late
        rows = rows._replace(y=y)
        said = {"learned": model.learn(rows)}
        name = f"{what} {late:g} {count}"
        parts_of = told(model, said, what == "count")
        found |= {f"{name} {part}": value for part, value in parts_of.items()
                  if not part.startswith("record")}  # fmt: skip
        kinds = [candidate.learner.settings.kind for candidate in model.candidates]
        found[f"{name} kinds"] = words(*kinds)
        others = rank_candidates(model.candidates, model.eliminated)
        found[f"{name} standings"] = table(0.0, *((one.nats, one.row) for one in others))
        found[f"{name} told"] = words("", *(one.settings for one in others))
        told_kinds = compare_target_types(model.candidates, model.eliminated)
        found[f"{name} kinds told"] = table(0.0 if told_kinds is None else told_kinds[2])
    return found


def widened() -> dict[str, Any]:
    """A column that comes late, and classes that do."""
    schema = schema_of()
    model = created("regression")
    rows = rows_for("regression", 80)
    said = {"before": model.learn(slice_rows(rows, 0, 40))}
    later = schema.copy()
    later.add_late_column("z", "number")
    wide = np.column_stack((rows.x[40:], bells(40, 1, 5)))
    rest = Rows(wide, rows.y[40:], rows.number[40:], schema=later)
    said["after"] = model.learn(rest)
    return told(model, said)


def asked() -> dict[str, Any]:
    """Effects, health, scales, joined models."""
    found: dict[str, Any] = {}
    for kind in ("regression", "classification", "amount"):
        stated: dict[str, Any] = {"kind": kind} if kind == "amount" else {}
        models = []
        for seed in (1, 7):
            model = created(kind, **stated, seed=seed)
            model.learn(rows_for(kind, 90 + seed, 1, seed))
            models.append(model)
        for one in compute_effects(models[0]):
            values = [list(effect)[1:] for effect in one.effects]
            found[f"{kind} effects {one.name}"] = np.array(values)
            names = rank_features(models[0], one.effects)
            found[f"{kind} ranked {one.name}"] = table([int(n[-1], 36) for n in names])
        found |= parts(
            kind, {"health": collect_health(models[0]), "scales": describe_scales(models[0])}
        )
        if kind == "amount":  # each has a unit of its own
            continue
        both = merge_models(models, ["one", "other"])
        said = both.predict(rows_for(kind, 12, 1, 20))
        found |= {f"joined {name}": part for name, part in told(both, {kind: said}).items()
                  if kind == "regression" or name.startswith(kind)}  # fmt: skip
    return found


def series() -> dict[str, Any]:
    """Lags, a clock, and steps ahead."""
    found: dict[str, Any] = {}
    names = ["t day sin", "t day cos", "t elapsed"]
    watch = clock.Clock("t", "text", 0.0, 3600.0, ["day"], names)
    looked = [lags.Lag("y 1", "y", 1), lags.Lag("y 3", "y", 3), lags.Lag("y 1d", "y", 0, 86400.0)]
    count = 130
    hour = np.arange(count) * 3600.0
    time = np.column_stack((hour, hour + 7200.0))
    y = np.sin(hour / 13751.0) + 0.3 * bells(count, 1, 2)[:, 0] + 2.0
    y[[40, 41]] = np.nan
    for changes in (True, False):
        for members in (1, 2):
            columns = [Column("t", "time", "feature"), Column("y", "number", "target")]
            layout = [Place(name, None) for name in (*names, *(lag.name for lag in looked))]
            schema = Schema(
                columns, "regression", layout=layout, clock=watch, lags=looked, changes=changes
            )
            model = OnlineModel(Settings(hidden=(4,), rehearse=0, ensemble=members), schema)
            x = np.column_stack((watch.encode_times(time), np.full((count, 3), np.nan)))
            rows = Rows(x, y[:, None], np.arange(1, count + 1), time=time)
            said = {"learned": model.learn(slice_rows(rows, 0, 50))}
            said["then"] = model.learn(slice_rows(rows, 50, count))
            coming = recursive_forecast.make_future_rows(schema, model.history, 30)
            steps = [slice_rows(coming, k, k + 1) for k in range(30)]
            context = model.forecast_context
            paths = recursive_forecast.forecast_origins(context, [model.history], steps)
            made = context.errors.open_combiner().combine(paths.candidates)
            name = f"{changes} {members}"
            found |= {f"{name} {part}": v.ravel() for part, v in made._asdict().items()}
            found |= {f"{name} {part}": v for part, v in told(model, said).items()
                      if members == 1 and not part.startswith("record")}  # fmt: skip
            found[f"{name} after"] = model.open_predictor()(coming).mean
    return found


def clocks() -> dict[str, Any]:
    """Cycles, seasons, months."""
    found: dict[str, Any] = {}
    instants = np.array([0.0, 1.7e9, 951782400.0, 1e9 + 0.5, np.nan])
    for cycle in clock.CYCLES:
        found[f"phase {cycle}"] = table(clock.compute_cycle_phase(cycle, instants))
    day = clock.DAY_SECONDS
    steps = (0.0, 60.0, 59.0, 3600.0, 7200.0, 43200.0, 50000.0, day, 2 * day, 7 * day, 30 * day)
    for step in (*steps, 91.0 * day, 182.0 * day, 365.0 * day):
        watch = clock.Clock("t", "text", 0.0, step, ["day", "week"], ["a", "b", "c", "d", "e"])
        time = np.column_stack((instants[:4], instants[:4] + 3600.0))
        found[f"step {step:g}"] = table(
            watch.months_per_step, watch.season_steps, watch.extend_times(time[2], 3)
        )
        found[f"values {step:g}"] = watch.encode_times(time)
    texts = ("1,2,24", "a:1,2;b:1h,7d,1.5min")
    said = [one for text in texts for one in lags.parse_lags(text)]
    found["said"] = table(*((one.rows, one.seconds) for one in said))
    listed = [lags.Lag("a", "y", 2), lags.Lag("b", "y", 0, 7200.0)]
    reach = lags.compute_lag_window(listed, 3600.0)
    past = lags.History(1, 1)
    hours = np.array([0.0, 1.0, 2.2, 3.0, 2.9, 4.0, np.nan, 6.0]) * 3600.0
    time, y = np.column_stack((hours, hours)), np.arange(8.0)[:, None]
    for part in (slice(0, 3), slice(3, 8)):
        seen = lags.look_up_lags(listed, ["y"], past, time[part], y[part], y[part], reach)
        found[f"past {part.start}"] = table(seen.lags, seen.base)
        past.append_rows(time[part], y[part], y[part], reach)
    found["reach"] = table(*reach, reach.find_start(np.arange(200.0) * 600.0), past.low, past.high)
    return found


def waiting() -> dict[str, Any]:
    """Targets that come late."""
    found: dict[str, Any] = {}
    for kind in ("regression", "classification"):
        classes = ["u", "v", "w"] if kind == "classification" else []
        schema = schema_of(kind, classes=classes, wait=6)
        schema.columns.append(Column("id", "category", "id"))
        model = OnlineModel(Settings(hidden=(4,), rehearse=0), schema)
        whole = rows_for(kind, 70)
        parts_of, names = [], []
        for at in range(70):
            late = slice_rows(whole, at, at + 1)
            if at >= 36 and at % 3:
                parts_of.append(late._replace(y=np.full((1, 1), np.nan)))
                names.append(f"r{at}")
                late = late._replace(x=np.full_like(late.x, np.nan), x_sd=np.zeros_like(late.x))
            parts_of.append(late)
            names.append(f"r{at if at % 5 else at + 90}")
        order = [k for k in range(len(names)) if k % 4 != 2] + [2 + 4 * k for k in range(20)]
        order = [k for k in order if k < len(names)]
        together = [
            np.concatenate([getattr(parts_of[k], field) for k in order])
            for field in Rows._fields[:5]
        ]
        rows = Rows._make([*together, *[None] * 5])._replace(id=[names[k] for k in order])
        found |= {f"{kind} {name}": part for name, part in
                  told(model, {"learned": model.learn(rows)}).items()}  # fmt: skip
        found[f"{kind} counts"] = table(
            list(model.pending_rows.counts.values()), len(model.pending_rows.rows)
        )
    return found


def changed() -> dict[str, Any]:
    """Networks that grow and change their scale."""
    found: dict[str, Any] = {}
    old = Scale(np.array([0.2, -1.0, 0.0, 3.0]), np.array([1.0, 2.0, 0.0, 0.5]))
    new = Scale(np.array([0.0, 4.0, 1.0, 3.5]), np.array([1.5, 0.7, 2.0, 0.0]))
    kinds: dict[str, dict[str, Any]] = {
        "group": {},
        "paper": {"covariance": "paper", "noise": 0.1},
        "two layers": {"hidden": (4, 3)},
        "no layer": {"hidden": ()},
        "classes": {"observation": "categorical", "outputs": 2},
        "wide": {"covariance": "wide", "directions": 2},
        "wide no layer": {"covariance": "wide", "directions": 2, "hidden": ()},
    }
    for name, options in kinds.items():
        config = Config(**{"inputs": 4, "hidden": (5,), "drift": False, **options})
        start = init(config, 5, directions=directions(config))
        x, y, x_var, weight = rows_of(config)
        session = kernel.open_session(start)
        session.learn(x, y, x_var, weight)
        session.replay(x[:6], y[:6])
        state = session.state()
        outputs = config.outputs
        gain, shift = np.full(outputs, 0.7), np.full(outputs, 0.4)
        for share in (1.0, 0.05):
            made = rescale_state(state, old, new, gain, shift, share)
            found |= grouped({f"{name} {share:g}/{part}": v for part, v in belief(made).items()})
        counts = state.counts.copy()
        counts[4] = 1
        anchored = rescale_state(state._replace(counts=counts), old, new, gain, shift)
        found[f"{name} anchored"] = np.append(anchored.mean, anchored.prior_mean)
        more = outputs + (name == "classes")
        wider = belief(grow_state(state, 6, more))
        found |= grouped({f"{name} grown/{part}": v for part, v in wider.items()})
        back = replay.remove_replayed_information(state)
        found[f"{name} taken back"] = np.append(back.cov, back.counts)
    return found


def scaled() -> dict[str, Any]:
    """Columns' scales on the way."""
    raw = bells(160, 3, 3) * np.array([1.0, 5.0, 0.01]) + np.array([0.0, 10.0, 0.0])
    raw[40, 0], raw[70:, 1], raw[:50, 2], raw[20, 0] = 300.0, raw[70:, 1] + 60.0, 0.25, np.nan
    found: dict[str, Any] = {}
    for name, given in (("varied", raw[:32]), ("few", raw[:3]), ("none", raw[:0])):
        found[f"warm {name}"] = scaler.fit_scaler(given)
    columns = scaler.fit_scaler(raw[:32])
    fixed = np.zeros(3)
    done, z = 32, []
    while done < len(raw):
        made = scaler.standardize_and_update(columns, raw[done:, :1], raw[done:, 1:], fixed)
        z.append(np.column_stack((made.labels, made.inputs)))
        done += len(made.labels)
        old = scaler.get_scale(columns)
        columns = scaler.refit_scale(columns, fixed, done < 100)
        far = scaler.is_large_change(old, scaler.get_scale(columns))
        found[f"after {done}"] = np.append(columns.ravel(), [float(far), float(made.outgrown)])
    found["z"] = np.concatenate(z)
    found["standardised"] = scaler.standardize_rows(columns, raw[:9], np.array([0.0, 1.0, 0.0]))
    found["blank"] = scaler.standardize_rows(scaler.blank_columns(3), raw[15:24], fixed)
    one, far_off = Scale(np.zeros(1), np.ones(1)), []
    for center, scale in ((0.0, 1.45), (0.0, 1.55), (0.0, 0.65), (0.45, 1.0), (0.55, 1.0)):
        far_off.append(scaler.is_large_change(one, Scale(np.array([center]), np.array([scale]))))
    found["far apart"] = table(far_off)
    near = []
    for mean, spread, count in ((0.0, 1.06, 300.0), (0.06, 1.0, 300.0), (0.0, 1.06, 600.0),
                                (0.0, 1.12, 600.0), (0.12, 1.0, 600.0)):  # fmt: skip
        for closely in (True, False):
            column = np.array([[count, mean, count * spread**2, 0.0, 1.0, 0.0, 1.0]])
            near.append(scaler.refit_scale(column, np.zeros(1), closely)[0])
    found["refit"] = np.array(near)
    return found


def rehearsed() -> dict[str, Any]:
    """When rows are learned once more, and ensembles' weights."""
    found: dict[str, Any] = {
        "kept": table(
            *(compute_buffer_rows(n, 2048) for n in (0, 1, 127, 128, 129, 200, 511, 512, 513))
        ),
        "intervals": table(
            *(replay.compute_replay_interval(n) for n in (0, 1023, 1024, 2048, 4096, 9000))
        ),
        "drawn": table(replay.draw_replay_rows(1, 40, 7, 17), replay.draw_replay_rows(0, 64, 5, 3)),
    }
    for name, now in {
        "young": replay.ReplayState(),
        "owing": replay.ReplayState(backlog=3.0),
        "warned": replay.ReplayState(backlog=3.0, alarm=9),
        "again": replay.ReplayState(since=100),
    }.items():
        for seen in (128, 1030, 1124, 3000, 20000):
            found[f"{name} {seen}"] = table(
                replay.find_next_burst(now, seen),
                replay.is_replay_due(now, seen),
                replay.add_to_backlog(now, seen, 8).backlog,
                replay.add_to_backlog(now, seen, 1).backlog,
            )
    scores = bells(20, 3, 1)
    none = np.zeros((20, 3, 0))
    weights, last = ensemble.update_weights(
        ensemble.make_equal_weights(3), scores, none, none, np.zeros((20, 0))
    )
    found["weights"] = np.vstack((weights[:, :-1], last.weight, last.benefit))
    found["priors"] = table(*(ensemble.prior_scales(k) for k in range(7)))
    return found


def candidates() -> dict[str, Any]:
    """Which settings race, and what the configuration of a network is."""
    found: dict[str, Any] = {}
    for name, settings in {
        "usual": Settings(),
        "auto": Settings(hidden="auto"),
        "auto group": Settings(hidden="auto", covariance="group"),
        "auto several": Settings(hidden="auto", ensemble=3),
        "fixed": Settings(rehearse=3, noise=0.5),
    }.items():
        for inputs in (4, 90, 91):
            made = settings.list_members(inputs)
            found[f"{name} {inputs}"] = table(
                len(made),
                *((sum(one.hidden), one.replays, one.variant) for one in made),
            )
    for kind in ("regression", "classification", "count"):
        for name, settings in {
            "usual": Settings(),
            "number": Settings(noise=0.5),
            "constant": Settings(noise="constant", clip=False, widen=False),
            "paper": Settings(preset="paper", **PRESETS["paper"]),
        }.items():
            for inputs in (90, 91):
                for outputs in (2, 5) if kind == "classification" else (1,):
                    member = settings.list_members(inputs, outputs)[0]
                    made_config = settings.make_config(member, task(kind), inputs, outputs, 4.0)
                    found |= parts(
                        f"{kind} {name} {inputs} {outputs}", {"config": vars(made_config)}
                    )
    return found


def cases() -> dict[str, Case]:
    """All of them."""
    made = {
        "asked": Case(asked, engines=True, kernel_alone=True),
        "refuted": Case(refuted, engines=True, close=CLOSE, kernel_alone=True),
        "widened": Case(widened, engines=True),
        "series": Case(series, engines=True, kernel_alone=True),
        "clocks": Case(clocks),
        "waiting": Case(waiting, engines=True, kernel_alone=True),
        "changed": Case(changed, engines=True, close=CLOSE),
        "scaled": Case(scaled, engines=True),
        "rehearsed": Case(rehearsed),
        "candidates": Case(candidates),
    }

    def add(name: str, what: str, count: int, /, **options: Any) -> None:
        make = partial(life, what, count, **options)
        made[name] = Case(make, engines=True, close=CLOSE, kernel_alone=True)

    add("real", "regression", 220)
    add("real twice", "regression", 150, again=True)
    add("real rehearsed", "regression", 220, rehearse=2)
    add("real unguarded", "regression", 150, robust=False, drift=False)
    add("real of two", "regression", 150, targets=2)
    add("race", "regression", 150, rehearse="auto")
    add("constant noise", "regression", 150, noise="constant")
    add("known noise", "regression", 150, noise=0.3)
    add("several", "regression", 150, ensemble=3)
    add("stated", "regression", 150, intervals="stated")
    add("as they are", "regression", 150, units=False)
    add("unclipped", "regression", 150, clip=False, widen=False)
    add("paper", "regression", 150, again=True, covariance="paper")
    add("preset", "regression", 150, **{**PRESETS["paper"], "preset": "paper", "hidden": (5,)})
    add("full", "regression", 150, covariance="full", activation="tanh")
    add("deep", "regression", 150, hidden=(4, 3), covariance="neuron")
    add("linear", "regression", 150, hidden=())
    add("wide", "regression", 220, covariance="wide")
    for kind in ("positive", "count", "amount"):
        add(kind, kind, 150, kind=kind)
        add(f"{kind} unguarded", kind, 90, kind=kind, robust=False)
        add(f"{kind} several", kind, 90, kind=kind, ensemble=2)
        add(f"{kind} found", kind, 90)
    add("labels", "classification", 220, rehearse=1)
    add("labels twice", "classification", 150, again=True)
    add("labels several", "classification", 150, ensemble=2)
    add("labels by a sigmoid", "two", 150, link="sigmoid", covariance="paper", noise=0.2)
    add("labels unguarded", "classification", 150, robust=False)
    add("long", "regression", 1300, rehearse="auto", hidden=(3,))
    add("longer", "regression", 4150, rehearse="auto", hidden=(2,))
    return made
