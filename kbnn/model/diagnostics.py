"""Diagnostics of a model without data: effects of the features, soundness and scales.

The effect of a number is the derivative of the prediction; that of a category is the prediction
with this category minus that with an unseen one. Both are averaged over rows sampled in the record,
with missing values at their mean. Derivatives are finite differences of predictions, so they hold
for every target type, ensemble and covariance scheme. Networks with many inputs, where that would
take seconds, use the chain rule instead: the expected Jacobian of the outputs times the derivatives
of the prediction with respect to them. The standard deviations come from the weight covariance and
always use the chain rule.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kbnn.array_types import FloatArray
from kbnn.core.jacobian import Sensitivity, compute_sensitivity
from kbnn.core.kernel import Session, open_session
from kbnn.core.layout import layout_of
from kbnn.core.series_models import compute_lag_slopes
from kbnn.data.batch import GAP_ROWS, longest_usual_gap, pad_columns
from kbnn.data.clock import format_times
from kbnn.data.schema import Place
from kbnn.distributions.categorical import inverse_temperature
from kbnn.metrics.sections import EffectQuantity, list_effect_quantities
from kbnn.model import scaler
from kbnn.model.ensemble import Member, find_active_slopes, list_inputs, sees_all_inputs
from kbnn.model.forecast_candidates import CANDIDATES, MODELED
from kbnn.model.learner import LearnerState, encode_member_inputs
from kbnn.model.model import OnlineModel
from kbnn.model.recursive_forecast import can_combine
from kbnn.model.warmup import WARM_UP_ROWS
from kbnn.targets.base import TargetScale, displayed_scale, list_noise_sds, max_outputs

SAMPLE_ROWS = 128
MIN_SAMPLE_ROWS = 8
MAX_PREDICTIONS = 30_000
"""Limit of rows predicted for finite differences, unless it means under MIN_SAMPLE_ROWS rows."""
MAX_DIFFERENCED_INPUTS = 250
"""Largest number of inputs with finite differences; with more, the chain rule is used."""
DIFFERENCE_STEP_SD = 1e-3
"""Half the distance of a central difference, in standard deviations of a feature or output."""


class Effect(NamedTuple):
    """Effect of one column of x on the target, per unit and per typical change.

    slope, slope_sd    target units per unit of the feature, averaged over rows
    effect, effect_sd  per standard deviation of the feature; for an indicator, of its presence
    size               root mean square effect over rows, in scales of the target if it has one,
                       else in the units of the effect
    """

    feature: str
    slope: float
    slope_sd: float
    effect: float
    effect_sd: float
    size: float


class QuantityEffects(NamedTuple):
    """Effects on one target or on the probability of one class."""

    name: str
    title: str
    unit: str
    effects: list[Effect]


def compute_effects(model: OnlineModel) -> list[QuantityEffects]:
    """Compute the effects on every quantity of the target type.

    Empty during the warm-up: nothing has been learned yet.
    """
    if model.is_warming_up:
        return []
    learned = model.learner_state
    t = model.task.scaled
    columns = learned.columns[t:]
    width = len(columns)
    as_is = model.learner.unscaled_inputs[:width]
    outputs = learned.members[0].config.outputs
    quantities = list_effect_quantities(model.task, outputs)
    z = _sample_rows(model, 2 * (width + outputs * len(learned.members)))
    found = _apply_chain_rule(model, quantities, z)
    if width <= MAX_DIFFERENCED_INPUTS:
        found = _difference_predictions(model, quantities, z, found.sd)
    step = np.where(as_is > 0, 1.0, columns[:, scaler.SCALE])
    names = model.schema.encoded_names()[:width]
    scale = get_displayed_scales(model).scale
    weights = _compute_candidate_weights(model)
    return [
        QuantityEffects(
            quantity.name,
            quantity.title,
            quantity.unit,
            _build_effects(
                Sensitivity(*(weights[0] * part[q] for part in found)),
                _base_slopes(model, quantity, weights)[:width],
                step,
                1.0 if quantity.target is None or not t else float(scale[quantity.target]),
                names,
            ),
        )
        for q, quantity in enumerate(quantities)
    ]


def _sample_rows(model: OnlineModel, predictions: int) -> FloatArray:
    """Return standardised rows of the record; each will need `predictions` predictions."""
    columns = model.learner_state.columns[model.task.scaled :]
    width = len(columns)
    count = max(MIN_SAMPLE_ROWS, min(SAMPLE_ROWS, MAX_PREDICTIONS // max(1, predictions)))
    kept = model.card.summaries.sample.x[:count]
    if not len(kept):
        return np.zeros((1, width))
    z = scaler.standardize_rows(
        columns, pad_columns(kept, width), model.learner.unscaled_inputs[:width]
    )
    return np.nan_to_num(z)


def _predict_quantities(
    model: OnlineModel, learned: LearnerState, quantities: Sequence[EffectQuantity], z: FloatArray
) -> FloatArray:
    """Predict the quantities (n, quantities) at standardised rows."""
    forecast = model.learner.predict_standardized(learned, np.ascontiguousarray(z))
    return np.stack([quantity.values(forecast) for quantity in quantities], axis=1)


def _apply_chain_rule(
    model: OnlineModel, quantities: Sequence[EffectQuantity], z: FloatArray
) -> Sensitivity:
    """Apply the chain rule through the outputs of every member; standard deviations add up."""
    learned = model.learner_state
    parts = []
    for at, member in enumerate(learned.members):
        state = member.state()
        gain = []
        for output in range(state.config.outputs):
            low, high = (
                _predict_quantities(model, _shift_output(learned, at, output, by), quantities, z)
                for by in (-DIFFERENCE_STEP_SD, DIFFERENCE_STEP_SD)
            )
            gain.append((high - low) / (2.0 * DIFFERENCE_STEP_SD))
        bins = learned.bins[at]
        spec = learned.specs[at]
        seen, _ = encode_member_inputs(spec, bins, z, None)
        slopes, at_input = find_active_slopes(bins, z)
        if not sees_all_inputs(spec):
            own = list_inputs(spec, z.shape[1])
            at_input = np.array([own.index(j) for j in at_input.tolist()], np.int64)
        found = compute_sensitivity(state, seen, np.stack(gain, axis=2), (slopes, at_input))
        parts.append(_place_inputs(found, spec, z.shape[1]))
    slopes, sds, sizes = (np.stack(part) for part in zip(*parts, strict=True))
    return Sensitivity(slopes.sum(axis=0), sds.sum(axis=0), sizes.sum(axis=0))


def _place_inputs(found: Sensitivity, spec: Member, width: int) -> Sensitivity:
    """Return sensitivities by input of the model; they are 0 for inputs that a network lacks."""
    if sees_all_inputs(spec):
        return found
    placed = []
    for part in found:
        every = np.zeros((*part.shape[:-1], width))
        every[..., list(list_inputs(spec, width))] = part
        placed.append(every)
    return Sensitivity(*placed)


def _shift_output(learned: LearnerState, at: int, output: int, by: float) -> LearnerState:
    """Return a state in which one output of one member is larger by `by` in every row."""
    state = learned.members[at].state()
    mean, layout = state.mean.copy(), layout_of(state.config)
    layout.weight_matrix(mean, layout.layers - 1)[output, 0] += by
    members = list(learned.members)
    members[at] = open_session(state._replace(mean=mean))
    return learned._replace(members=tuple(members))


def _difference_predictions(
    model: OnlineModel, quantities: Sequence[EffectQuantity], z: FloatArray, sd: FloatArray
) -> Sensitivity:
    """Compute differences of predictions, input by input."""
    layout = model.schema.layout[: z.shape[1]]
    slope, size = np.zeros_like(sd), np.zeros_like(sd)
    for at, place in enumerate(layout):
        low, high, distance = z.copy(), z.copy(), 2.0 * DIFFERENCE_STEP_SD
        if place.category is None:
            low[:, at] -= DIFFERENCE_STEP_SD
            high[:, at] += DIFFERENCE_STEP_SD
        else:
            own = [k for k, other in enumerate(layout) if other.column == place.column]
            low[:, own], high[:, own], high[:, at], distance = 0.0, 0.0, 1.0, 1.0
        below, above = (
            _predict_quantities(model, model.learner_state, quantities, end) for end in (low, high)
        )
        slopes = (above - below) / distance
        slope[:, at] = np.mean(slopes, axis=0)
        size[:, at] = np.sqrt(np.mean(slopes**2, axis=0))
    return Sensitivity(slope, sd, size)


def _compute_candidate_weights(model: OnlineModel) -> FloatArray:
    """Return the weights (6,) of the network and the simple forecasts of one step."""
    made = np.eye(CANDIDATES)
    if can_combine(model.schema, model.task):
        if not model.timeline.season:
            made[:, 2:4] = np.nan
        if model.history.series is None:
            made[:, MODELED] = np.nan
        sd = np.full(CANDIDATES, model.step_errors.typical_sd)
        return model.step_errors.combine_one_step(made[:, 0], sd, made[:, 1:]).mean
    return np.asarray(made[0])


def _base_slopes(model: OnlineModel, quantity: EffectQuantity, weights: FloatArray) -> FloatArray:
    """Return the slopes of what is added to the network's prediction.

    They are the level, if changes are learned, and the simple forecasts that are combined with the
    network's.
    """
    slopes = np.zeros(len(model.schema.layout))
    if quantity.target is None:
        return slopes
    network, last, season, moved = weights[:4].tolist()
    rows, series = model.timeline.season, model.history.series
    by_lag = {1: network * model.schema.changes + last + moved}
    if rows:
        by_lag[rows] = by_lag.get(rows, 0.0) + season + moved
        by_lag[rows + 1] = by_lag.get(rows + 1, 0.0) - moved
    own = [lag for lag in model.schema.lags if lag.column == model.task.targets[quantity.target]]
    back = {lag.rows: Place(lag.name, None) for lag in reversed(own) if lag.rows}
    if series is not None:
        modeled = weights[MODELED] @ compute_lag_slopes(series, [*back])
        for lag_rows, slope in zip(back, modeled.tolist(), strict=True):
            by_lag[lag_rows] = by_lag.get(lag_rows, 0.0) + slope
    for lag_rows, place in back.items():
        slopes[model.schema.layout.index(place)] = by_lag.get(lag_rows, 0.0)
    return slopes


def _build_effects(
    found: Sensitivity,
    base: FloatArray,
    step: FloatArray,
    scale: float,
    names: list[str],
) -> list[Effect]:
    """Build the effects on one quantity; `scale` is that of the target, 1 where it has none."""
    safe = np.where(step > 0.0, step, np.inf)
    slope, sd = base + found.slope / safe, found.sd / safe
    added = base * step
    size = np.sqrt(np.maximum(found.size**2 + 2.0 * added * found.slope + added**2, 0.0))
    size = size / scale if scale > 0.0 else size
    table = np.column_stack((slope, sd, slope * step, sd * step, size))
    return [Effect(name, *row) for name, row in zip(names, table.tolist(), strict=True)]


def rank_features(model: OnlineModel, found: list[Effect]) -> list[str]:
    """Sort features by size of effect, largest first; the categories of a column count as one."""
    sizes: dict[str, float] = {}
    for place, effect in zip(model.schema.layout, found, strict=False):
        sizes[place.column] = math.hypot(sizes.get(place.column, 0.0), effect.size)
    return sorted(sizes, key=lambda name: -sizes[name])


def collect_health(model: OnlineModel) -> dict[str, Any]:
    """Collect figures that show whether the state is numerically sound."""
    return {
        "smallest_variance_ratio": smallest_variance_ratio(model),
        "repairs": model.learner_state.get_count("repairs"),
        "rejected": model.rejected_rows,
        "clipped": model.learner_state.get_count("clipped"),
        "bounded": model.learner_state.get_count("bounded"),
        "raised": model.learner_state.get_count("raised"),
        "alarms": model.learner_state.get_count("alarms"),
        "alarm_rows": model.alarms,
        "alarm_details": [alarm._asdict() for alarm in describe_alarms(model)],
        "warming_up": model.is_warming_up,
        "held_rows": model.held_rows,
        "scale_changes": model.learner_state.changes,
        "rehearsed": model.learner_state.replay_state.rows,
        "sharpness": inverse_temperature(known)
        if len(known := model.learner_state.temperature)
        else None,
        "missing_lately": missing_lately(model),
        "waiting": {"rows": len(model.pending_rows.rows), **model.pending_rows.counts},
    }


class AlarmRecord(NamedTuple):
    """A drift alarm: its row, its time if there is a clock, and the columns that moved."""

    row: int
    time: str | None
    moved: list[str]


MIN_ALARM_SAMPLE_ROWS = 8
MIN_SHIFT_SD = 0.5
MIN_SHIFT_ERRORS = 4.0
"""A column has moved at an alarm if its mean changed by at least this many of its standard
deviations and standard errors, with at least MIN_ALARM_SAMPLE_ROWS rows before and after."""
BURST_ROWS = 256
"""Alarms that are fewer rows apart belong to one change."""


def describe_alarms(model: OnlineModel) -> list[AlarmRecord]:
    """Describe the last drift alarms: when they were raised, and which columns moved there.

    The rows sampled in the record between an alarm and the next are compared with those between the
    alarm before and this one; alarms within BURST_ROWS rows are of one change. Columns of inputs
    and targets are listed by the size of their shift; a clock always moves and is left out.
    """
    sample, alarms = model.card.summaries.sample, model.alarms
    row = sample.order + 1 + WARM_UP_ROWS  # rows of the warm-up are not in the record
    values = np.hstack((sample.y, sample.x)) if len(sample) else np.zeros((0, 0))
    source = {lag.name: lag.column for lag in model.schema.lags}
    layout = [source.get(place.column, place.column) for place in model.schema.layout]
    names = [*model.schema.targets, *layout]
    always = set() if model.schema.clock is None else set(model.schema.clock.names)
    found = []
    for alarm in alarms:
        start = max((one for one in alarms if one <= alarm - BURST_ROWS), default=0)
        end = min((one for one in alarms if one >= alarm + BURST_ROWS), default=np.inf)
        before, after = (row >= start) & (row < alarm), (row >= alarm) & (row < end)
        shifts: dict[str, float] = {}
        for name, column in zip(names, values.T, strict=False):
            if name in always:
                continue
            size = _measure_shift(column[before], column[after])
            shifts[name] = max(size, shifts.get(name, 0.0))
        time = None
        if model.schema.clock is not None and alarm in model.alarm_times:
            time = format_times(model.schema.clock, np.array([model.alarm_times[alarm]]))[0]
        moved = [
            name for name in sorted(shifts, key=lambda key: -shifts[key]) if shifts[name] > 0.0
        ]
        found.append(AlarmRecord(alarm, time, moved))
    return found


def _measure_shift(before: FloatArray, after: FloatArray) -> float:
    """Return the change of the mean in standard deviations; 0 if it is small or uncertain."""
    before, after = before[np.isfinite(before)], after[np.isfinite(after)]
    if min(len(before), len(after)) < MIN_ALARM_SAMPLE_ROWS:
        return 0.0
    shift = abs(float(np.mean(after) - np.mean(before)))
    var = float(np.var(before)), float(np.var(after))
    error = math.sqrt(var[0] / len(before) + var[1] / len(after))
    size = shift / max(math.sqrt(max(var)), np.finfo(np.float64).tiny)
    return size if size >= MIN_SHIFT_SD and shift >= MIN_SHIFT_ERRORS * error else 0.0


def missing_lately(model: OnlineModel) -> dict[str, int]:
    """Return features without a value in unusually many of the last rows, and how many."""
    schema = model.schema
    x = model.learner_state.buffer.rows().x
    decided = {c.name for c in schema.columns if c.role == "feature" and c.kind != "undecided"}
    found: dict[str, int] = {}
    looked_at = set[str]()
    for at, place in enumerate(schema.layout[: x.shape[1]]):
        if place.column not in decided or place.column in looked_at:
            continue
        looked_at.add(place.column)  # the indicators of a category are missing together
        there = np.flatnonzero(~np.isnan(x[:, at]))
        total = int(there[-1]) + 1 if len(there) else 0
        gap = len(x) - total
        if gap >= (longest_usual_gap(len(there), total) if total else GAP_ROWS):
            found[place.column] = gap
    return found


def smallest_variance_ratio(model: OnlineModel) -> float | None:
    """Return the smallest weight variance as a share of its prior; None during the warm-up."""
    states = [member.state() for member in model.learner_state.members]
    ratios = [
        state.cov[layout_of(state.config).variance_positions] / state.prior_var for state in states
    ]
    return min((float(np.min(ratio)) for ratio in ratios), default=None)


def describe_scales(model: OnlineModel) -> list[dict[str, Any]]:
    """Return center, scale and row count of every scaled target and column of x, in its units."""
    columns, targets = model.learner_state.columns.copy(), model.task.scaled
    if len(columns):
        shown = get_displayed_scales(model)
        columns[:targets, scaler.CENTER], columns[:targets, scaler.SCALE] = shown
    width = len(columns) - targets
    names = [*model.task.targets[:targets], *model.schema.encoded_names()[:width]]
    fixed = [False] * targets + [bool(one) for one in model.learner.unscaled_inputs[:width]]
    waves = model.schema.cycle_columns
    found = []
    for at, (name, as_is, column) in enumerate(zip(names, fixed, columns, strict=False)):
        passing = "cycle" if name in waves else "indicator"
        found.append(
            {
                "name": name,
                "role": "target" if at < targets else passing if as_is else "feature",
                "center": 0.0 if as_is else float(column[scaler.CENTER]),
                "scale": 1.0 if as_is else float(column[scaler.SCALE]),
                "rows": None if as_is else int(column[scaler.COUNT]),
            }
        )
    return found


def list_networks(model: OnlineModel) -> tuple[Member, ...]:
    """List the networks of the leader, or those that it will start with."""
    return model.learner_state.specs or model.settings.list_members(
        model.schema.width,
        max_outputs(model.task),
        model.learner.is_series,
        model.learner.own_inputs,
        model.learner.optional_inputs,
    )


def _get_target_scale(model: OnlineModel) -> TargetScale:
    """Return center and scale of each scaled target, as learned."""
    columns = model.learner_state.columns[: model.task.scaled]
    return TargetScale(columns[:, scaler.CENTER], columns[:, scaler.SCALE])


def get_displayed_scales(model: OnlineModel) -> TargetScale:
    """Return center and scale of each scaled target, in the user's units."""
    scaled = _get_target_scale(model)
    if not len(scaled.scale):
        return scaled
    return displayed_scale(model.task, scaled, model.learner_state.calibration)


def list_model_noise(model: OnlineModel) -> list[float]:
    """List the noise sd of each target in its units; empty where there is none.

    Of an ensemble, it is that of the network with the largest weight.
    """
    if model.is_warming_up:
        return []
    member = _get_leading_network(model)
    scales = _get_target_scale(model).scale.tolist()
    return list_noise_sds(model.task, member.noise, member.config.noise, scales)


def _get_leading_network(model: OnlineModel) -> Session:
    """Return the network of an ensemble with the largest weight."""
    learned = model.learner_state
    return learned.members[int(np.argmax(learned.pool.weight))]


def list_displayed_noise(model: OnlineModel) -> list[float]:
    """List the noise of each target as shown to users, see `TargetType.displayed_noise`."""
    if model.is_warming_up:
        return []
    member, calibration = _get_leading_network(model), model.learner_state.calibration
    scaled = _get_target_scale(model)
    return model.task.displayed_noise(member.noise, member.config.noise, scaled, calibration)
