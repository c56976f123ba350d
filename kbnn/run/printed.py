"""In what a model with the paper's covariance departs from the paper's two algorithms."""

from __future__ import annotations

from kbnn.model.model import Model
from kbnn.wording import count


def departures(model: Model) -> list[str] | None:
    """Each in a few words, none where all is as printed; None where it is another algorithm."""
    members = model.learned.members
    if not members or members[0].config.covariance != "paper":
        return None
    return [*_chosen(model), *_happened(model)]


def _chosen(model: Model) -> list[str]:
    settings, config = model.learner.settings, model.learned.members[0].config
    squashing = (*config.activations, *config.kind.through)
    sigmoids = [f.name for f in squashing if f.printed_var is not None]
    found = {
        "the noise is learned": config.learns_noise,
        f"labels have a noise of sd {_shown(settings.noise)}": bool(config.noise),
        f"hidden units have a noise of variance {config.hidden_noise:g}": (
            config.hidden_noise > 0.0
        ),
        **dict.fromkeys(model.task.departures, True),
        "the exact variance of sigmoids": bool(sigmoids) and not config.printed_variance,
        "tanh(a) is 2 s(2a) - 1, printed as 2 s(a) + 1": "tanh" in sigmoids,
        "outliers count less": config.robust,
        "the sharpness of probabilities is learned": len(model.learned.sharpness) > 0,
        "drift is watched for": config.drift,
        "rows are rehearsed": settings.often > 0,
        f"{settings.ensemble} networks": settings.ensemble > 1,
    }
    return [text for text, holds in found.items() if holds]


def _happened(model: Model) -> list[str]:
    config = model.learned.members[0].config
    counts = {
        "variances of units bounded": model.count("bounded"),
        "variances of sigmoids raised": model.count("raised"),
        "variances of weights repaired": model.repairs,
        "inputs clipped": model.count("clipped"),
        "rows rejected": model.rejected,
        "changes of scale": model.learned.changes,
    }
    found = [f"{count(times)} {what}" for what, times in counts.items() if times]
    if config.repeats and model.count("rows") > model.count("distinct"):
        found.append("error bars widened for rows learned again")
    return found


def _shown(noise: str | float) -> str:
    return noise if isinstance(noise, str) else f"{noise:g}"
