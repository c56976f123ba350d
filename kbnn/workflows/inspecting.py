"""What `kbnn inspect` reports about a model, as plain data.

It includes the list of deviations from the paper's two algorithms, for models with the paper's
covariance.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from kbnn import __version__
from kbnn.core import kernel
from kbnn.core.layout import layout_of
from kbnn.metrics.scorecard import Scorecard
from kbnn.metrics.sections import (
    TargetSection,
    build_target_section,
    describe_classes,
    describe_dependence,
    describe_noise,
    describe_target,
    mark_alarms,
)
from kbnn.model import candidates as candidates_module
from kbnn.model import diagnostics
from kbnn.model.dependence import (
    Dependence,
    Interaction,
    compute_dependences,
    compute_interaction,
)
from kbnn.model.diagnostics import (
    QuantityEffects,
    compute_effects,
    list_model_noise,
    list_networks,
    rank_features,
)
from kbnn.model.ensemble import describe_member, estimate_row_cost
from kbnn.model.explain import Importance, compute_importance
from kbnn.model.interface import StreamModel
from kbnn.model.model import OnlineModel
from kbnn.wording import (
    clean_text,
    format_count,
    format_number,
    format_percent,
    format_rows,
)
from kbnn.workflows.forecast import add_forecast_chart
from kbnn.workflows.keyed import get_overall_model

MAX_LISTED_ALARMS = 5


@dataclass(frozen=True)
class Inspection:
    """Description of a model: settings, network, columns, counts, effects, health and metrics."""

    path: str
    bytes: int
    task: str
    description: str  # task and targets in words
    targets: list[str]
    classes: list[str]
    facts: list[tuple[str, str]]  # further properties of the targets
    noise: list[tuple[str, str]]  # observation noise in words; empty if there is none
    rows: int
    skipped: int
    pending_labels: str  # rows without their target so far, in words; empty without --id
    settings: dict[str, Any]
    network: dict[str, Any] | None  # the first network; None while the model is warming up
    networks: list[dict[str, Any]]  # every network, also those dropped
    columns: list[dict[str, Any]]
    noise_sd: dict[str, float]
    effects: list[QuantityEffects]
    importance: dict[str, list[Importance]]  # by quantity, largest first; empty if not computed
    dependence: dict[str, list[Dependence]]  # by target; empty if not computed
    interactions: dict[str, Interaction | None]  # of the two strongest columns, by target
    health: dict[str, Any]
    candidates: list[dict[str, Any]]
    paper_deviations: list[str] | None  # from the paper; None: another algorithm
    engine: str
    position: dict[str, Any]
    figures: dict[str, dict[str, Any]]
    sections: list[TargetSection]

    def to_json(self) -> dict[str, Any]:
        """Return the object of `inspect --json`."""
        return {
            "model": self.path,
            "version": __version__,
            "bytes": self.bytes,
            "task": self.task,
            "targets": self.targets,
            "classes": self.classes,
            "rows": self.rows,
            "skipped": self.skipped,
            "settings": self.settings,
            "network": self.network,
            "networks": self.networks,
            "columns": self.columns,
            "noise_sd": self.noise_sd,
            "sensitivity": {
                effects.name: [effect._asdict() for effect in effects.effects]
                for effects in self.effects
            },
            "sensitivity_unit": {effects.name: effects.unit for effects in self.effects},
            "importance": {
                quantity: [column._asdict() for column in columns]
                for quantity, columns in self.importance.items()
            },
            "dependence": {
                target: [
                    {
                        "column": one.feature,
                        "grid": one.grid.tolist() if one.categories is None else one.categories,
                        "mean": one.mean.tolist(),
                        "sd": one.sd.tolist(),
                    }
                    for one in found
                ]
                for target, found in self.dependence.items()
            },
            "interactions": {
                target: None if found is None else found.to_json()
                for target, found in self.interactions.items()
            },
            "health": self.health,
            "race": self.candidates,
            "departures": self.paper_deviations,
            "engine": self.engine,
            "position": self.position,
            "prequential": self.figures,
        }

    def list_importance(self, target: int) -> list[Importance]:
        """List the importance of the columns for the mean of a target, or for the label."""
        return _select_importance(self.importance, self.targets[target])

    @property
    def summary(self) -> str:
        """Target type, targets and number of rows, in one line."""
        return f"{self.description}, {format_rows(self.rows)} learned"

    def list_lines(self) -> list[tuple[str, str]]:
        """List label and value of every line."""
        return [*self.identity_lines(), *self.history_lines(), *self.health_lines()]

    def identity_lines(self) -> list[tuple[str, str]]:
        """List the lines that describe the model."""
        found = [("task", self.description)]
        found += self.facts
        settings, network = self.settings, self.network
        if network is None:
            sizes = " + ".join(one["description"] for one in self.networks)
            found.append(
                ("network", f"hidden units {sizes} ({settings['activation']}), not created yet")
            )
        elif len(self.networks) == 1:
            hidden = " and ".join(map(str, network["hidden"])) or "no hidden"
            found += [
                (
                    "network",
                    f"{format_noun_count(network['inputs'], 'input')}, "
                    f"{hidden} {settings['activation']}, "
                    f"{format_noun_count(network['outputs'], 'output')}: "
                    f"{format_count(network['weights'])} weights",
                ),
                (
                    "covariance",
                    f"{network['covariance']}, {format_count(network['covariances'])} numbers",
                ),
            ]
        if self.paper_deviations is not None:
            apart = "; ".join(self.paper_deviations)
            found.append(
                ("algorithm", f"the paper's, {f'but: {apart}' if apart else 'as printed'}")
            )
        if settings["preset"] != "none":
            found.append(("preset", settings["preset"]))
        members = len(self.networks) if network is None else network["members"]
        if members > 1:
            found.append(("ensemble", f"{members} networks"))
        if network is not None and len(self.networks) > 1:
            found += [("network", _describe_network(one)) for one in self.networks]
        found += self.noise
        guards = {"robust": "robust to outliers", "drift": "watches for drift"}
        found += [
            ("guards", ", ".join(text for name, text in guards.items() if settings[name]) or "off"),
            ("seed", str(settings["seed"])),
            ("engine", self.engine),
            ("size", format_bytes(self.bytes)),
        ]
        return found

    def history_lines(self) -> list[tuple[str, str]]:
        """List the lines about the rows learned."""
        health = self.health
        rows = [format_rows(self.rows)]
        rows += [f"{format_count(self.skipped)} without a target"] if self.skipped else []
        rows += [f"{format_count(health['rejected'])} rejected"] if health["rejected"] else []
        found = [("learned", ", ".join(rows))]
        if health["warming_up"]:
            found.append(
                ("warm-up", f"{format_rows(health['held_rows'])} held until the scale is known")
            )
        found += [("pending labels", self.pending_labels)] if self.pending_labels else []
        found += self._selection_lines()
        found.append(("drift alarms", self._format_alarms()))
        found += [
            ("drift alarm", _format_alarm(alarm))
            for alarm in health["alarm_details"][-MAX_LISTED_ALARMS:]
            if alarm["time"] or alarm["moved"]
        ]
        found.append(("scale changes", format_count(health["scale_changes"])))
        found += [
            ("missing lately", f"{clean_text(name)}: no value in the last {format_rows(rows)}")
            for name, rows in health["missing_lately"].items()
        ]
        return found

    def _selection_lines(self) -> list[tuple[str, str]]:
        """List the lines about replay and about the selection among candidates."""
        found = []
        if self.health["rehearsed"]:
            found.append(("replayed", format_rows(self.health["rehearsed"])))
        for rival in self.candidates:
            evidence = candidates_module.format_evidence(rival["nats"], rival["settings"])
            ahead = f"{rival['leader']} {evidence}"
            state = (
                f", eliminated at row {format_count(rival['row'])}"
                if rival["row"]
                else ", not decided yet"
            )
            found.append(("selection", ahead + state))
        return found

    def _format_alarms(self) -> str:
        rows = self.health["alarm_rows"]
        if not rows:
            return "none"
        last = ", ".join(format_count(row) for row in rows[-MAX_LISTED_ALARMS:])
        which = "at row" if len(rows) == 1 else "at rows"
        if self.health["alarms"] > MAX_LISTED_ALARMS:
            which = "the last at rows"
        return f"{format_count(self.health['alarms'])}, {which} {last}"

    def health_lines(self) -> list[tuple[str, str]]:
        """List the lines about numerical health."""
        health = self.health
        ratio = health["smallest_variance_ratio"]
        return [
            (
                "smallest variance",
                "-" if ratio is None else f"{format_number(ratio, 3)} of its prior",
            ),
            ("repairs", format_count(health["repairs"])),
            *self._deviation_lines(),
            ("clipped inputs", format_count(health["clipped"])),
        ]

    def _deviation_lines(self) -> list[tuple[str, str]]:
        """List how often variances of the paper's formulas had to be corrected."""
        if self.paper_deviations is None:
            return []
        bounded, raised = (format_count(self.health[name]) for name in ("bounded", "raised"))
        return [("bounded variances", bounded), ("raised variances", raised)]


def describe_networks(model: OnlineModel) -> list[dict[str, Any]]:
    """Describe every network of a model: shape, weight and cost, and those that were dropped."""
    learned = model.learner_state
    costs = [estimate_row_cost(member.config) for member in learned.members]
    found: list[dict[str, Any]] = []
    for k, spec in enumerate(list_networks(model)):
        there = bool(learned.members)
        found.append(
            {
                "description": describe_member(spec, model.learner.optional_inputs),
                **spec._asdict(),
                "hidden": list(spec.hidden),
                "inputs": learned.members[k].config.inputs if there else None,
                "weight": float(learned.pool.weight[k]) if there else None,
                "cost_share": costs[k] / sum(costs) if there else None,
                "dropped": None,
            }
        )
    for one in learned.dropped:
        found.append(
            {
                "description": describe_member(one.member, model.learner.optional_inputs),
                **one.member._asdict(),
                "hidden": list(one.member.hidden),
                "inputs": None,
                "weight": 0.0,
                "cost_share": 0.0,
                "dropped": {"row": one.row, "benefit": one.benefit, "price": one.price},
            }
        )
    return found


def _describe_network(one: dict[str, Any]) -> str:
    """Describe a network of an ensemble in one line."""
    if one["dropped"] is None:
        share = f"weight {format_number(one['weight'], 2)}"
        return f"{one['description']}: {share}, {format_percent(one['cost_share'])} of the cost"
    at, earned, price = (one["dropped"][name] for name in ("row", "benefit", "price"))
    return (
        f"{one['description']}: dropped at row {format_count(at)}, it added "
        f"{format_number(earned, 2)} nats a row and had to add {format_number(price, 2)}"
    )


def format_noun_count(number: int, name: str) -> str:
    """Format a count with its noun: `1 input`, `11 inputs`."""
    return f"{format_count(number)} {name}{'' if number == 1 else 's'}"


def format_bytes(size: int) -> str:
    """Format a number of bytes with a unit."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} bytes"


MAX_MOVED_COLUMNS = 3


def _format_alarm(alarm: dict[str, Any]) -> str:
    """Format when a drift alarm was raised, and which columns moved."""
    parts = [f"row {format_count(alarm['row'])}"]
    parts += [alarm["time"]] if alarm["time"] else []
    moved = [clean_text(name) for name in alarm["moved"][:MAX_MOVED_COLUMNS]]
    more = len(alarm["moved"]) - len(moved)
    names = ", ".join(moved) + (f" and {more} more" if more > 0 else "")
    return ", ".join(parts) + (f": {names} moved" if moved else "")


def _select_importance(importance: dict[str, list[Importance]], target: str) -> list[Importance]:
    """Return the importance of the columns for the label, or for the mean of a target."""
    names = ("log_odds", "mean", f"mean_{target}")
    return next((importance[name] for name in names if name in importance), [])


def _compute_dependence(
    model: OnlineModel,
    card: Scorecard,
    effects: list[QuantityEffects],
    importance: dict[str, list[Importance]],
) -> tuple[dict[str, list[Dependence]], dict[str, Interaction | None]]:
    """Return the partial dependence of each target on the strongest columns, and interactions."""
    dependence: dict[str, list[Dependence]] = {}
    interactions: dict[str, Interaction | None] = {}
    for at, (target, score) in enumerate(zip(model.schema.targets, card.scores, strict=True)):
        spec = describe_dependence(model.task, score, card.summaries, at)
        found = next((one.effects for one in effects if one.title == spec.effect), [])
        shown = _select_importance(importance, target)
        ranked = dict.fromkeys([one.column for one in shown] + rank_features(model, found))
        dependence[target] = compute_dependences(model, card, list(ranked), spec)
        interactions[target] = compute_interaction(model, card, list(ranked), spec)
    return dependence, interactions


def inspect_model(
    whole: StreamModel,
    path: str,
    size: int | None = None,
    *,
    explain: bool = False,
    background: Scorecard | None = None,
) -> Inspection:
    """Inspect a model or fleet.

    `size` is its size in bytes if `path` is not its file. To `explain` what was learned (importance
    of columns, partial dependence, interactions) takes about a second; partial dependence is
    averaged over the sampled rows of `background`, by default of the model's own record.
    """
    model = get_overall_model(whole)
    effects = compute_effects(model)
    dependence: dict[str, list[Dependence]] = {}
    interactions: dict[str, Interaction | None] = {}
    importance: dict[str, list[Importance]] = {}
    if explain:
        importance, card = compute_importance(model), background or model.card
        dependence, interactions = _compute_dependence(model, card, effects, importance)
    members = model.learner_state.members
    network = None
    if members:
        config = members[0].config
        network = {
            "inputs": config.inputs,
            "hidden": list(config.hidden),
            "outputs": config.outputs,
            "activation": config.activation,
            "covariance": config.covariance,
            "weights": config.weights,
            "covariances": layout_of(config).size,
            "members": len(members),
        }
    targets, card = model.schema.targets, model.card
    noise_sd = dict(zip(targets, list_model_noise(model), strict=False))
    return Inspection(
        path=path,
        bytes=os.path.getsize(path) if size is None else size,
        task=model.task.name,
        description=describe_target(model.task),
        targets=targets,
        classes=list(model.schema.classes),
        facts=describe_classes(model.task, model.learner_state.temperature),
        noise=describe_noise(model.task, model.settings.noise, noise_sd),
        rows=whole.rows,
        skipped=whole.skipped,
        pending_labels=model.pending_rows.format_summary() if model.schema.wait else "",
        settings=model.settings.to_json(),
        network=network,
        networks=describe_networks(model),
        columns=list_columns(model),
        noise_sd=noise_sd,
        effects=effects,
        importance=importance,
        dependence=dependence,
        interactions=interactions,
        health={**diagnostics.collect_health(model), "rejected": whole.rejected_rows},
        paper_deviations=list_paper_deviations(model),
        candidates=[
            rival._asdict()
            for rival in candidates_module.rank_candidates(model.candidates, model.eliminated)
        ],
        engine=kernel.describe_engine(),
        position=whole.position,
        figures={
            name: score.metric_values() for name, score in zip(targets, card.scores, strict=True)
        },
        sections=[
            add_forecast_chart(
                model,
                mark_alarms(
                    build_target_section(model.task, score, card.summaries, at, points),
                    model.alarms,
                ),
            )
            for at, (score, points) in enumerate(zip(card.scores, card.curve_points(), strict=True))
        ],
    )


def list_columns(model: OnlineModel) -> list[dict[str, Any]]:
    """Describe every column: type, role, categories, scale and share of missing values."""
    known = {column["name"]: column for column in diagnostics.describe_scales(model)}
    histograms = model.card.summaries.features
    places: dict[str, int] = {}
    for index, place in enumerate(model.schema.layout):
        places.setdefault(place.column, index)
    found = []
    for column in model.schema.columns:
        scale = known.get(column.name, {})
        at = places.get(column.name)
        missing = None
        if at is not None and at < histograms.feature_count:
            absent = int(histograms.missing[at])
            total = absent + int(histograms.counts[at].sum())
            missing = absent / total if total else None
        found.append(
            {
                "name": column.name,
                "kind": column.kind,
                "role": column.role,
                "of": column.of,
                "categories": column.categories,
                "center": scale.get("center"),
                "scale": scale.get("scale"),
                "as_change": bool(model.schema.changes and column.role == "target"),
                "missing": missing,
            }
        )
    return found


def list_paper_deviations(model: OnlineModel) -> list[str] | None:
    """List the deviations from the paper in words; None if the model uses another algorithm."""
    members = model.learner_state.members
    if not members or members[0].config.covariance != "paper":
        return None
    return [*_chosen_deviations(model), *_counted_deviations(model)]


def _chosen_deviations(model: OnlineModel) -> list[str]:
    """List deviations that the settings cause."""
    settings, config = model.learner.settings, model.learner_state.members[0].config
    squashing = (*config.activations, *config.kind.output_activations)
    sigmoids = [f.name for f in squashing if f.printed_var is not None]
    found = {
        "the noise is learned": config.learns_noise,
        f"labels have a noise of sd {_format_noise(settings.noise)}": bool(config.noise),
        f"hidden units have a noise of variance {config.hidden_noise:g}": (
            config.hidden_noise > 0.0
        ),
        "class labels by probit": model.task.observation == "categorical",
        "the exact variance of sigmoids": bool(sigmoids) and not config.printed_variance,
        "tanh(a) is 2 s(2a) - 1, printed as 2 s(a) + 1": "tanh" in sigmoids,
        "outliers get less weight": config.robust,
        "the temperature of probabilities is learned": len(model.learner_state.temperature) > 0,
        "drift is monitored": config.drift,
        "rows are replayed": settings.replay_ratio > 0,
        f"{settings.ensemble} networks": settings.ensemble > 1,
    }
    return [text for text, holds in found.items() if holds]


def _counted_deviations(model: OnlineModel) -> list[str]:
    """List deviations that occurred while learning, with their counts."""
    config = model.learner_state.members[0].config
    counts = {
        "variances of units bounded": model.learner_state.get_count("bounded"),
        "variances of sigmoids raised": model.learner_state.get_count("raised"),
        "variances of weights repaired": model.learner_state.get_count("repairs"),
        "inputs clipped": model.learner_state.get_count("clipped"),
        "rows rejected": model.rejected_rows,
        "changes of scale": model.learner_state.changes,
    }
    found = [f"{format_count(times)} {what}" for what, times in counts.items() if times]
    if config.repeats and model.learner_state.get_count("rows") > model.learner_state.get_count(
        "distinct"
    ):
        found.append("error bars widened for rows learned again")
    return found


def _format_noise(noise: str | float) -> str:
    return noise if isinstance(noise, str) else f"{noise:g}"
