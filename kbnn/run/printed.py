"""In what a model with the paper's covariance departs from the paper's two algorithms."""

from __future__ import annotations

from kbnn.model.model import OnlineModel
from kbnn.wording import format_count


def list_paper_deviations(model: OnlineModel) -> list[str] | None:
    """Each in a few words, none where all is as printed; None where it is another algorithm."""
    members = model.learner_state.members
    if not members or members[0].config.covariance != "paper":
        return None
    return [*_chosen_deviations(model), *_counted_deviations(model)]


def _chosen_deviations(model: OnlineModel) -> list[str]:
    settings, config = model.learner.settings, model.learner_state.members[0].config
    squashing = (*config.activations, *config.kind.output_activations)
    sigmoids = [f.name for f in squashing if f.printed_var is not None]
    found = {
        "the noise is learned": config.learns_noise,
        f"labels have a noise of sd {_format_noise(settings.noise)}": bool(config.noise),
        f"hidden units have a noise of variance {config.hidden_noise:g}": (
            config.hidden_noise > 0.0
        ),
        **dict.fromkeys(model.task.paper_deviations, True),
        "the exact variance of sigmoids": bool(sigmoids) and not config.printed_variance,
        "tanh(a) is 2 s(2a) - 1, printed as 2 s(a) + 1": "tanh" in sigmoids,
        "outliers count less": config.robust,
        "the sharpness of probabilities is learned": len(model.learner_state.sharpness) > 0,
        "drift is watched for": config.drift,
        "rows are rehearsed": settings.replay_ratio > 0,
        f"{settings.ensemble} networks": settings.ensemble > 1,
    }
    return [text for text, holds in found.items() if holds]


def _counted_deviations(model: OnlineModel) -> list[str]:
    config = model.learner_state.members[0].config
    counts = {
        "variances of units bounded": model.get_network_count("bounded"),
        "variances of sigmoids raised": model.get_network_count("raised"),
        "variances of weights repaired": model.repair_count,
        "inputs clipped": model.get_network_count("clipped"),
        "rows rejected": model.rejected_rows,
        "changes of scale": model.learner_state.changes,
    }
    found = [f"{format_count(times)} {what}" for what, times in counts.items() if times]
    if config.repeats and model.get_network_count("rows") > model.get_network_count("distinct"):
        found.append("error bars widened for rows learned again")
    return found


def _format_noise(noise: str | float) -> str:
    return noise if isinstance(noise, str) else f"{noise:g}"
