"""Convert a model to plain data, a JSON header and named arrays, and back, with checks.

Arrays of ensemble member k of candidate j are named `racer<j>/network<k>/<field>`. Their meaning is
described in kbnn.core.state, the order of weights and covariance triangles in kbnn.core.layout.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, Final

import numpy as np

from kbnn.array_types import MAX_ABS_VALUE, FloatArray
from kbnn.core.config import Config
from kbnn.core.input_moments import InputLevels, WatchedInputs
from kbnn.core.kernel import open_session
from kbnn.core.layout import layout_of
from kbnn.core.series_models import SeriesState, learn_series
from kbnn.core.state import ARRAYS, State, init
from kbnn.data.lags import MAX_HISTORY_ROWS, History
from kbnn.data.schema import MAX_PENDING_LIMIT, Schema
from kbnn.distributions import calibration, categorical
from kbnn.distributions.predictive import PARAM_COUNT
from kbnn.errors import ModelError
from kbnn.metrics.figures import check_stored_count
from kbnn.metrics.scorecard import Scorecard
from kbnn.model import scaler
from kbnn.model.anomaly import (
    Monitor,
    is_valid_detector,
    is_valid_levels,
    is_valid_watch,
    start_input_watch,
    start_monitor,
    widen_scalars,
)
from kbnn.model.anomaly_reference import DetectorState
from kbnn.model.candidates import MAX_ALARM_ROWS, Candidate, EliminatedCandidate
from kbnn.model.ensemble import NO_BINS, Member, PoolWeights, count_inputs, is_valid_bins
from kbnn.model.forecast_candidates import COMBINED_STEPS
from kbnn.model.forecast_combination import StepErrors
from kbnn.model.learner import DroppedMember, LearnerState, make_learner
from kbnn.model.model import OnlineModel
from kbnn.model.pending_labels import (
    COUNTER_NAMES,
    PendingArrays,
    pack_pending_rows,
    unpack_pending_rows,
)
from kbnn.model.recursive_forecast import can_combine
from kbnn.model.replay import MAX_HELD_ROWS, BufferedRows, ReplayBuffer, ReplayState
from kbnn.model.settings import (
    BELIEF_LIMIT,
    EVIDENCE_LIMIT,
    MAX_ALERT_RATE,
    MAX_CANDIDATES,
    MAX_ENSEMBLE,
    MAX_LAYER_UNITS,
    MAX_REPLAY_BACKLOG,
    MAX_WATCHED,
    ROW_EVIDENCE_LIMIT,
    TARGET_LIMIT,
    Settings,
    WatchedColumns,
)
from kbnn.plain_values import read_dataclass, read_value
from kbnn.targets.base import TargetType, is_valid_output_count
from kbnn.targets.classification import init_class_temperature

Arrays = dict[str, np.ndarray[Any, Any]]


def to_state(model: OnlineModel) -> tuple[dict[str, Any], Arrays]:
    """Return header and arrays; `from_state` restores the same bits."""
    card, arrays = model.card.to_state()
    out: Arrays = {f"record/{name}": array for name, array in arrays.items()}
    for k, candidate in enumerate(model.candidates):
        out.update(
            {
                f"racer{k}/{name}": array
                for name, array in _collect_candidate_arrays(candidate).items()
            }
        )
    if model.schema.lags:
        out.update({f"past/{name}": array for name, array in model.history.arrays().items()})
        if model.history.series is not None:
            state = model.history.series._asdict()
            out.update({f"series/{name}": array for name, array in state.items()})
    if can_combine(model.schema, model.task):
        out.update({f"ahead/{name}": a for name, a in model.step_errors._asdict().items()})
    pending: dict[str, Any] = {}
    if model.schema.wait:
        kept = pack_pending_rows(model.pending_rows, model.learner.indicators, model.task.numbers)
        out.update({f"waiting/{name}": array for name, array in kept._asdict().items()})
        pending = {"waiting": {"ids": list(model.pending_rows.rows), **model.pending_rows.counts}}
    monitor: dict[str, Any] = {}
    if model.monitor is not None:
        monitor = {"monitor": {"rate": model.monitor.rate}}
        detectors, watch = model.monitor.detectors, model.monitor.inputs
        if watch is not None:
            columns, others, has_targets = watch.chosen
            monitor["monitor"]["watch"] = [*columns]
            monitor["monitor"]["watch_others"] = [*others]
            monitor["monitor"]["watch_targets"] = has_targets
            out.update({f"watch/{name}": a for name, a in watch.moments._asdict().items()})
            detectors += watch.detectors
        if model.monitor.levels is not None:
            out.update({f"levels/{name}": a for name, a in model.monitor.levels._asdict().items()})
        for j, detector in enumerate(detectors):
            out.update({f"detector{j}/{name}": a for name, a in detector._asdict().items()})
    header = {
        **pending,
        **monitor,
        "settings": model.settings.to_json(),
        "schema": model.schema.to_json(),
        "racers": [_make_candidate_header(candidate) for candidate in model.candidates],
        "lost": [
            {"settings": lost.to_json(), "nats": nats, "row": row, "leader": leader.to_json()}
            for lost, nats, row, leader in model.eliminated
        ],
        **({"class_counts": model.class_counts.tolist()} if len(model.class_counts) else {}),
        **(
            {"alarm_times": [[row, *time] for row, time in model.alarm_times.items()]}
            if model.alarm_times
            else {}
        ),
        "skipped": model.skipped,
        "let_go": model.dropped_rows,
        "position": model.position,
        "record": card,
    }
    return header, out


def _make_candidate_header(candidate: Candidate) -> dict[str, Any]:
    """Return the header of one candidate."""
    learned = candidate.learned
    states = [member.state() for member in learned.members]
    return {
        "settings": candidate.learner.settings.to_json(),
        "networks": [
            {
                "config": {**asdict(state.config), "hidden": list(state.config.hidden)},
                "seed": state.seed,
                "member": member._asdict(),
            }
            for state, member in zip(states, learned.specs, strict=True)
        ],
        "pool": {
            "rows": learned.pool.rows,
            "scale": learned.pool.scale,
            "benefit_rows": learned.pool.benefit_rows,
        },
        "dropped": [{**one._asdict(), "member": one.member._asdict()} for one in learned.dropped],
        "scale": {"rows": learned.seen, "changes": learned.changes},
        "most_kept": learned.buffer.max_rows,
        "rehearsal": dict(zip(_REPLAY_NAMES, learned.replay_state, strict=True)),
        "evidence": candidate.evidence,
        "alarms": list(candidate.alarms),
    }


def _collect_candidate_arrays(candidate: Candidate) -> Arrays:
    """Return the named arrays of one candidate."""
    learned = candidate.learned
    out: Arrays = {f"kept/{name}": a for name, a in learned.buffer.rows()._asdict().items()}
    out["scale/columns"] = learned.columns
    out["stated/tails"] = learned.calibration
    out["stated/sharpness"] = learned.temperature
    out["ensemble/weight"] = learned.pool.weight
    out["ensemble/benefit"] = learned.pool.benefit
    for k, member in enumerate(learned.members):
        state = member.state()
        written = [name for name in ARRAYS if name != "view" or state.view.size]
        out.update({f"network{k}/{name}": getattr(state, name) for name in written})
        if len(learned.bins[k]):
            out[f"network{k}/bins"] = learned.bins[k]
    return out


def from_state(header: dict[str, Any], arrays: Arrays, name: str = "the model") -> OnlineModel:
    """Restore the model that `to_state` described.

    Raise ModelError if the data is inconsistent. Errors in its record, which is decoded when first
    needed, mention `name`.
    """
    try:
        return _restore_model(header, arrays, name)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise ModelError(f"the model is damaged ({error})") from error


def copy_model(model: OnlineModel) -> OnlineModel:
    """Return an independent copy."""
    header, arrays = to_state(model)
    return from_state(
        {**header, "schema": model.schema.copy().to_json()},
        {name: array.copy() for name, array in arrays.items()},
    )


def _restore_model(header: dict[str, Any], arrays: Arrays, name: str) -> OnlineModel:
    """Build the model from header and arrays, and check that they agree."""
    model = OnlineModel(Settings.from_json(header["settings"]), Schema.from_json(header["schema"]))
    headers = _check_objects(header["racers"], "candidates")
    _require(1 <= len(headers) <= MAX_CANDIDATES, "candidates")
    model.candidates = _limit_evidence(
        tuple(
            _restore_candidate(model, candidate, _select_prefix(arrays, f"racer{k}/"))
            for k, candidate in enumerate(headers)
        )
    )
    seen = {candidate.learned.seen for candidate in model.candidates}
    initialized = {bool(candidate.learned.members) for candidate in model.candidates}
    _require(len(seen) == 1 and initialized in ({True}, {False}), "candidates")
    _require(initialized == {True} or len(headers) == 1, "candidates")
    model.eliminated = tuple(
        EliminatedCandidate(
            Settings.from_json(one["settings"]),
            _read_float(one["nats"]),
            check_stored_count(one["row"]),
            Settings.from_json(one["leader"]),
        )
        for one in _check_objects(header["lost"], "candidates")
    )
    counts = read_value(list[float], header.get("class_counts", []), "class_counts")
    _require(len(counts) <= len(model.schema.classes) and min(counts, default=0.0) >= 0.0, "counts")
    model.class_counts = np.array(counts, np.float64)
    times = header.get("alarm_times", [])
    _require(isinstance(times, list) and len(times) <= MAX_ALARM_ROWS, "times of alarms")
    model.alarm_times = {
        check_stored_count(row): [_read_float(instant), _read_float(local)]
        for row, instant, local in times
    }
    model.skipped = check_stored_count(header["skipped"])
    model.dropped_rows = check_stored_count(header.get("let_go", 0))
    full = initialized == {True} or model.held_rows == MAX_HELD_ROWS
    _require(full or not model.dropped_rows, "number of dropped rows")
    model.rows_seen = model.rows + model.rejected_rows + model.skipped
    _require(isinstance(header["position"], dict), "position")
    model.position = dict(header["position"])
    if model.schema.lags:
        model.history = _restore_history(model, _select_prefix(arrays, "past/"))
    if can_combine(model.schema, model.task):
        model.step_errors = _restore_step_errors(_select_prefix(arrays, "ahead/"))
    if model.timeline.has_series_models:
        _restore_series(model, _select_prefix(arrays, "series/"))
    if model.schema.wait:
        _restore_pending_rows(model, header["waiting"], _select_prefix(arrays, "waiting/"))
    if "monitor" in header:
        model.monitor = _restore_monitor(model, header["monitor"], arrays)
    record = _select_prefix(arrays, "record/")
    model.record.set_card(
        lambda: Scorecard.from_state(model.task, header.get("record", {}), record, name)
    )
    return model


def _restore_monitor(model: OnlineModel, header: dict[str, Any], arrays: Arrays) -> Monitor:
    """Restore the detectors of the targets, and check them."""
    rate = _read_float(header["rate"])
    _require(0.0 < rate <= MAX_ALERT_RATE, "rate of alerts")
    has_clock = model.schema.clock is not None
    pattern = start_monitor(model.task, rate, has_clock=has_clock)
    columns = tuple(read_value(list[str], header.get("watch", []), "watch"))
    others = tuple(read_value(list[str], header.get("watch_others", []), "watch_others"))
    names = columns + others
    _require(len(set(names)) == len(names) <= MAX_WATCHED, "watched columns")
    likes = pattern.detectors
    if columns:
        has_targets = read_value(bool, header["watch_targets"], "watch_targets")
        chosen = WatchedColumns(columns, others, has_targets)
        watch = start_input_watch(chosen, has_clock=has_clock)
        likes += watch.detectors
    detectors = []
    for j, like in enumerate(likes):
        own = _select_prefix(arrays, f"detector{j}/")
        detector = DetectorState(*(_read_floats(own, name) for name in DetectorState._fields))
        detector = detector._replace(scalars=widen_scalars(detector.scalars))
        _require(is_valid_detector(detector, like), "detector")
        detectors.append(detector)
    targets = len(pattern.detectors)
    own = _select_prefix(arrays, "levels/")
    levels = (
        InputLevels(*(_read_floats(own, name) for name in InputLevels._fields)) if own else None
    )
    _require(levels is None or is_valid_levels(levels), "levels of inputs")
    restored = Monitor(tuple(detectors[:targets]), rate, levels=levels)
    if not columns:
        return restored
    own = _select_prefix(arrays, "watch/")
    moments = WatchedInputs(*(_read_floats(own, name) for name in WatchedInputs._fields))
    known = watch._replace(moments=moments, detectors=tuple(detectors[targets:]))
    _require(is_valid_watch(known, watch), "watched inputs")
    return restored._replace(inputs=known)


def _restore_pending_rows(model: OnlineModel, header: dict[str, Any], arrays: Arrays) -> None:
    """Restore the rows that wait for their label, and check them."""
    rows = PendingArrays(*(_read_floats(arrays, name) for name in PendingArrays._fields))
    ids = read_value(list[str], header["ids"], "ids")
    fits = len(set(ids)) == len(ids) <= model.schema.wait <= MAX_PENDING_LIMIT
    fits = fits and all(len(array) == len(ids) for array in rows)
    fits = fits and rows.x.shape[1] == model.schema.width
    fits = fits and rows.x_sd.shape[1] in (0, model.schema.width)
    fits = fits and rows.mean.shape[1:] == (model.task.numbers,)
    fits = fits and rows.stated.shape[1] == model.task.numbers * PARAM_COUNT
    fits = (
        fits and not bool(np.any(np.abs(rows.x) > MAX_ABS_VALUE)) and bool(np.all(rows.x_sd >= 0.0))
    )
    _require(fits and bool(np.all((rows.weight > 0.0) & (rows.weight < np.inf))), "pending rows")
    for name in COUNTER_NAMES:
        setattr(model.pending_rows, name, check_stored_count(header[name]))
    unpack_pending_rows(model.pending_rows, ids, rows)


def _restore_history(model: OnlineModel, arrays: Arrays) -> History:
    """Restore the rows that lags look back to, and check them."""
    history = model.timeline.make_history()
    shapes = {name: array.shape[1:] for name, array in history.arrays().items()}
    found = {name: _read_floats(arrays, name) for name in shapes}
    fits = all(found[name].shape[1:] == shape for name, shape in shapes.items())
    rows = len(found["values"])
    fits = fits and rows == len(found["time"]) and rows <= MAX_HISTORY_ROWS
    known = [found[name] for name in ("last", "low", "high")]
    fits = fits and all(array.shape == history.last.shape for array in known)
    limit = all(bool(np.all(~(np.abs(array) > MAX_ABS_VALUE))) for array in found.values())
    _require(fits and limit, "history of lags")
    vars(history).update(found)
    return history


def _restore_series(model: OnlineModel, arrays: Arrays) -> None:
    """Restore the statistical models of a series; in older files they learn the stored rows."""
    state = SeriesState.create(model.timeline.season)
    if arrays:
        found = SeriesState(*(_read_floats(arrays, name) for name in SeriesState._fields))
        _require(found.is_valid() and found.season == state.season, "series models")
        model.history.series = found
        return
    rows = model.history.values[:, model.timeline.columns.index(model.schema.targets[0])]
    model.history.series, paths = learn_series(state, rows, COMBINED_STEPS)
    model.step_errors = model.step_errors.learn_series_models(paths, rows)


def _restore_step_errors(arrays: Arrays) -> StepErrors:
    """Restore the errors of past forecasts; older files have none."""
    if not arrays:
        return StepErrors.create()
    errors = StepErrors(*(_read_floats(arrays, name) for name in StepErrors._fields))
    _require(errors.is_valid(), "errors of past forecasts")
    return errors


def _restore_candidate(model: OnlineModel, header: dict[str, Any], arrays: Arrays) -> Candidate:
    """Restore one candidate, and check that its parts agree."""
    settings = Settings.from_json(header["settings"])
    learner = make_learner(model.schema, settings)
    task = learner.task
    members = header["networks"]
    _require(len(members) <= MAX_ENSEMBLE, "number of networks")
    states = [_read_network(member, arrays, f"network{k}/") for k, member in enumerate(members)]
    specs = tuple(_read_member(member["member"]) for member in members)
    columns = _read_floats(arrays, "scale/columns")
    bins = _read_bins(arrays, len(members), len(columns) - task.scaled)
    for state, spec, own in zip(states, specs, bins, strict=True):
        width = len(columns) - task.scaled
        seen = count_inputs(spec, width)
        _require(
            columns.shape == (task.scaled + width, scaler.FIELDS)
            and state.config.inputs - len(own) == seen
            and max((*spec.inputs, *spec.excludes), default=0) < max(width, 1)
            and len(set(spec.inputs)) == len(spec.inputs)
            and len(set(spec.excludes)) == len(spec.excludes)
            and bool(np.all(np.isfinite(columns)))
            and bool(np.all(columns[:, [scaler.COUNT, scaler.SQUARES, scaler.SCALE]] >= 0.0))
            and state.config.outputs == states[0].config.outputs
            and width <= model.schema.width
            and state.config.observation == task.observation,
            "scale",
        )
        _require(is_valid_output_count(task, state.config.outputs), "outputs")
    learned = LearnerState(
        tuple(open_session(state) for state in states),
        columns,
        _read_pool(header["pool"], arrays, max(1, len(members))),
        check_stored_count(header["scale"]["rows"]),
        check_stored_count(header["scale"]["changes"]),
        _read_buffer(
            arrays,
            _read_buffer_rows(header, bool(states), settings.keep),
            len(model.schema.targets),
        ),
        _read_calibration(arrays, task),
        _read_replay_state(header["rehearsal"], check_stored_count(header["scale"]["rows"])),
        _read_temperature(arrays, task, settings.robust, states),
        specs,
        bins,
        tuple(
            DroppedMember(
                _read_member(one["member"]),
                check_stored_count(one["row"]),
                _read_float(one["benefit"]),
                _read_float(one["price"]),
            )
            for one in _check_objects(header.get("dropped", []), "dropped networks")
        ),
    )
    alarms = [check_stored_count(row) for row in read_value(list[int], header["alarms"], "alarms")]
    _require(len(alarms) <= MAX_ALARM_ROWS, "alarms")
    return Candidate(learner, learned, _read_float(header["evidence"]), tuple(alarms))


def _limit_evidence(candidates: tuple[Candidate, ...]) -> tuple[Candidate, ...]:
    """Shift evidence relative to the best candidate where it exceeds EVIDENCE_LIMIT.

    Older files may contain such values.
    """
    if all(abs(candidate.evidence) <= EVIDENCE_LIMIT for candidate in candidates):
        return candidates
    best = max(candidate.evidence for candidate in candidates)
    return tuple(
        replace(candidate, evidence=max(candidate.evidence - best, -ROW_EVIDENCE_LIMIT))
        for candidate in candidates
    )


def _read_member(plain: dict[str, Any]) -> Member:
    """Restore what distinguishes a network of an ensemble."""
    member = Member(
        tuple(read_value(list[int], list(plain["hidden"]), "hidden")),
        read_value(str, plain["covariance"], "covariance"),
        read_value(str, plain["encoding"], "encoding"),
        read_value(bool, plain["replays"], "replays"),
        check_stored_count(plain["variant"]),
        read_value(bool, plain.get("adapts_prior", False), "adapts_prior"),
        read_value(bool, plain.get("forgets", False), "forgets"),
        inputs=tuple(check_stored_count(at) for at in plain.get("inputs", ())),
        excludes=tuple(check_stored_count(at) for at in plain.get("excludes", ())),
    )
    sizes = all(1 <= size <= MAX_LAYER_UNITS for size in member.hidden)
    _require(sizes and member.encoding in ("none", "piecewise"), "networks")
    return member


def _read_pool(header: dict[str, Any], arrays: Arrays, members: int) -> PoolWeights:
    """Restore the weights of an ensemble, and check them."""
    weight, benefit = (_read_floats(arrays, f"ensemble/{name}") for name in ("weight", "benefit"))
    scale = _read_float(header["scale"])
    fits = weight.shape == benefit.shape == (members,) and 0.0 < scale < 1e6
    fits = fits and bool(np.all(weight >= 0.0)) and abs(float(np.sum(weight)) - 1.0) < 1e-6
    _require(fits and bool(np.all(np.abs(benefit) < 1e12)), "ensemble weights")
    counts = [check_stored_count(header[name]) for name in ("rows", "benefit_rows")]
    return PoolWeights(weight, counts[0], scale, benefit, counts[1])


def _read_bins(arrays: Arrays, members: int, inputs: int) -> tuple[FloatArray, ...]:
    """Restore the bins of each network; equal bins become one array."""
    found: list[FloatArray] = []
    for k in range(members):
        name = f"network{k}/bins"
        bins = _read_floats(arrays, name) if name in arrays else NO_BINS
        _require(is_valid_bins(bins, inputs), "bins")
        found.append(next((one for one in found if np.array_equal(one, bins)), bins))
    return tuple(found)


def _read_calibration(arrays: Arrays, task: TargetType) -> np.ndarray[Any, np.dtype[np.float64]]:
    known = _read_floats(arrays, "stated/tails")
    _require(
        known.shape == task.init_calibration(True).shape
        and calibration.is_valid_calibration(known),
        "calibration",
    )
    return known


def _read_temperature(
    arrays: Arrays, task: TargetType, mixed: bool, states: list[State]
) -> np.ndarray[Any, np.dtype[np.float64]]:
    known = _read_floats(arrays, "stated/sharpness")
    like = (
        init_class_temperature(task.labels, mixed, states[0].config.outputs)
        if states
        else categorical.NO_TEMPERATURE
    )
    _require(known.shape == like.shape and categorical.is_valid_temperature(known), "temperature")
    return known


_REPLAY_NAMES: Final = ("debt", "since", "settled", "rows", "alarm", "grown")
"""Names of the fields of a `ReplayState` in the file."""


def _read_replay_state(header: dict[str, Any], seen: int) -> ReplayState:
    backlog, since = _read_float(header["debt"]), check_stored_count(header["since"])
    _require(0.0 <= backlog <= MAX_REPLAY_BACKLOG and since <= seen, "replay state")
    return ReplayState(
        backlog,
        since,
        read_value(bool, header["settled"], "settled"),
        check_stored_count(header["rows"]),
        check_stored_count(header["alarm"]),
        check_stored_count(header["grown"]),
    )


def _select_prefix(arrays: Arrays, prefix: str) -> Arrays:
    """Select the arrays whose names start with `prefix`, and strip it."""
    return {
        name.removeprefix(prefix): array
        for name, array in arrays.items()
        if name.startswith(prefix)
    }


def _check_objects(value: Any, what: str) -> list[dict[str, Any]]:
    _require(isinstance(value, list) and all(isinstance(one, dict) for one in value), what)
    return list(value)


def _read_float(value: Any) -> float:
    return float(read_value(float, value, "number"))


def _read_buffer_rows(header: dict[str, Any], initialized: bool, keep: int) -> int:
    if not initialized:
        return MAX_HELD_ROWS
    most = check_stored_count(header.get("most_kept", keep))
    _require(min(MAX_HELD_ROWS, keep) <= most <= keep, "replay buffer")
    return most


def _read_buffer(arrays: Arrays, most: int, targets: int) -> ReplayBuffer:
    """Read the replay buffer, and check shapes and ranges."""
    kept = BufferedRows(*(_read_floats(arrays, f"kept/{name}") for name in BufferedRows._fields))
    rows = len(kept.y)
    fits = (
        rows <= most
        and kept.y.shape[1:] == (targets,)
        and len(kept.x) == rows
        and len(kept.x_sd) == rows
        and kept.x_sd.shape[1] in (0, kept.x.shape[1])
        and kept.weight.shape == kept.number.shape == kept.trust.shape == (rows,)
    )
    for values, limit in (
        (kept.x, MAX_ABS_VALUE),
        (kept.x_sd, MAX_ABS_VALUE),
        (kept.y, TARGET_LIMIT),
    ):
        fits = fits and not bool(np.any(np.isfinite(values) & (np.abs(values) > limit)))
    fits = fits and bool(np.all(kept.x_sd >= 0.0)) and bool(np.all(kept.weight > 0.0))
    fits = fits and bool(np.all(np.isfinite(kept.weight)) and np.all(kept.number >= 1.0))
    fits = fits and bool(np.all(kept.number < 2.0**53))
    fits = fits and bool(np.all((kept.trust >= 0.0) & (kept.trust <= 1.0)))
    _require(fits, "replay buffer")
    return ReplayBuffer(most, targets, kept)


def _read_network(header: dict[str, Any], arrays: Arrays, prefix: str) -> State:
    """Read the state of one network, and check shapes and ranges."""
    config = read_dataclass(Config, header["config"])
    _require(isinstance(header["seed"], int) and header["seed"] >= 0, "seed")
    _require(arrays[prefix + "mean"].shape == (config.weights,), "weights")
    _require(arrays[prefix + "cov"].shape == (layout_of(config).size,), "covariances")
    pattern = init(config, 0)
    fields: dict[str, Any] = {}
    for name in ARRAYS:
        like = getattr(pattern, name)
        array = arrays[prefix + name] if like.size else like  # empty arrays may be omitted
        _require(array.shape == like.shape and array.dtype == like.dtype, name)
        _require(bool(np.all(np.abs(array) <= BELIEF_LIMIT)), name)
        fields[name] = np.ascontiguousarray(array)
    diagonal = fields["cov"][layout_of(config).variance_positions]
    noise = fields["noise"][:, 0] if config.kind.has_signed_noise else fields["noise"]
    for name, least in (("prior_var", fields["prior_var"]), ("noise", noise)):
        _require(bool(np.all(least > 0.0)), name)
    _require(bool(np.all(diagonal >= 0.0)), "cov")
    _require(bool(np.all(fields["counts"] >= 0)), "counts")
    _require(bool(np.all(fields["surprise"] >= 0.0)), "surprise")
    return State(config=config, seed=int(header["seed"]), **fields)


def _read_floats(arrays: Arrays, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    array = arrays[name]
    _require(array.dtype == np.float64, name)
    return np.ascontiguousarray(array)


def _require(condition: bool, what: str) -> None:
    """Raise ModelError naming the invalid part unless the condition holds."""
    if not condition:
        raise ModelError(f"the model is damaged (invalid {what})")
