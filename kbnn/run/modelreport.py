"""The page and the main picture of a model: what it learned, beside how good its forecasts were."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kbnn import __version__, report
from kbnn.errors import DataError, UsageError
from kbnn.model.model import Model
from kbnn.report import Dependence, PictureData, ReportData, Sensitivity
from kbnn.report.fill import Predict
from kbnn.report.picture import FORMATS
from kbnn.report.svg import figure_class
from kbnn.run.effects import Effect, ranked
from kbnn.run.inspecting import Inspection
from kbnn.score.class_metrics import ClassScore
from kbnn.score.rowsums import FloatArray
from kbnn.score.scorecard import Scorecard
from kbnn.stream.encode import Block
from kbnn.wording import clean, number

DEPENDENCES = 5
"""Features whose partial dependence is drawn, the most important ones."""

GRID = 40


def check_files(page: str | None, picture: str | None = None) -> None:
    """Refuse at once, not after an hour of evaluation, what could not be written."""
    for option, path, endings in (
        ("--report", page, (".html", ".htm")),
        ("--plot", picture, tuple(f".{kind}" for kind in FORMATS)),
    ):
        if path is None:
            continue
        if not path.lower().endswith(endings):
            known = f"{', '.join(endings[:-1])} or {endings[-1]}"
            raise UsageError(f"{option} '{path}': the name must end in {known}")
        if not Path(path).resolve().parent.is_dir():
            raise DataError(f"{path}: cannot be written (no such file or directory)")
        figure_class()


def named(path: str) -> str:
    """A file by its name alone."""
    return clean(Path(path).name)


def write(
    model: Model,
    card: Scorecard,
    inspection: Inspection,
    *,
    page: str | None = None,
    picture: str | None = None,
    title: str = "",
    learning: bool = True,
) -> None:
    """Write what is asked for; `learning` is whether the card was kept while the model learned."""
    if page is not None:
        report.write_report(page_data(model, card, inspection, title, learning), page)
    if picture is not None:
        report.write_picture(picture_data(model, card), picture)


def page_data(
    model: Model, card: Scorecard, inspection: Inspection, title: str, learning: bool
) -> ReportData:
    """All the page shows."""
    schema = model.schema
    targets = [
        report.target_report(
            card,
            at,
            name,
            schema.features,
            schema.classes,
            learning=learning,
            sensitivity=sensitivity(
                effects_of(model, card, inspection, at), unit(model, card, name)
            ),
            dependence=dependences(model, card, effects_of(model, card, inspection, at), at),
            cells=lambda x: cells(model, x),
            shown=probability_name(model, card) if model.classes else "",
        )
        for at, name in enumerate(schema.targets)
    ]
    return ReportData(title, inspection.summary, targets, inspection.card(), __version__)


def effects_of(model: Model, card: Scorecard, inspection: Inspection, target: int) -> list[Effect]:
    """The effects on a target, or on the score of the class that is drawn."""
    if model.classes:
        name = model.schema.classes[shown_class(model, card)]
        return inspection.effects.get(name, [])
    return inspection.effects.get(model.schema.targets[target], [])


def sensitivity(effects: list[Effect], unit: str) -> Sensitivity | None:
    """The effects for the chart; None while nothing is known."""
    if not effects:
        return None
    return Sensitivity(
        [effect.feature for effect in effects],
        np.array([effect.effect for effect in effects]),
        np.array([effect.effect_sd for effect in effects]),
        unit,
    )


def cells(model: Model, x: FloatArray) -> list[str]:
    """One encoded row as a reader knows it: numbers, and categories by name."""
    found: dict[str, str] = {}
    for place, value in zip(model.schema.layout, x.tolist(), strict=False):
        if place.category is None:
            found[place.column] = number(value)
        elif value == 1.0:
            found[place.column] = place.category
        else:
            found.setdefault(place.column, "-")
    return [found.get(name, "-") for name in model.schema.features]


def predictor(model: Model, target: int, shown: int = 1, *, total: bool = False) -> Predict:
    """The model as a function of x: one target's mean and sd, or one class's probability.

    The standard deviation is that of the function, or with `total` that of the prediction; for a
    class, with `total`, that of its label, sqrt(p (1 - p)), and else none is known.
    """

    def predict(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        unknown = np.full((x.shape[0], len(model.schema.targets)), np.nan)
        rows = np.arange(1, x.shape[0] + 1)
        forecast = model.predict(Block(x, None, unknown, None, rows, None))
        if forecast.probability is None:
            sd = forecast.sd if total else forecast.function_sd
            return forecast.mean[:, target], sd[:, target]
        p = forecast.probability[:, shown]
        return p, np.sqrt(p * (1 - p)) if total else np.zeros_like(p)

    return predict


def shown_class(model: Model, card: Scorecard) -> int:
    """The class whose probability is drawn: the second of two, else the commonest."""
    if len(model.schema.classes) <= 2 or not card.summaries.confusion.size:
        return min(1, max(len(model.schema.classes) - 1, 0))
    return int(np.argmax(card.summaries.confusion.sum(axis=1)))


def probability_name(model: Model, card: Scorecard) -> str:
    """What is drawn of a class target."""
    return f"probability of {clean(model.schema.classes[shown_class(model, card)])}"


def unit(model: Model, card: Scorecard, target: str) -> str:
    """What an effect is measured in."""
    if model.classes:
        target = f"the score of {clean(model.schema.classes[shown_class(model, card)])}"
    return f"change of {clean(target)} per standard deviation of the feature"


def dependences(
    model: Model, card: Scorecard, effects: list[Effect], target: int
) -> list[Dependence]:
    """Partial dependence of the features with the largest effects."""
    background = card.summaries.sample.x
    if not len(card.summaries.sample):
        return []
    predict = predictor(model, target, shown_class(model, card))
    places: dict[str, dict[str | None, int]] = {}
    for at, place in enumerate(model.schema.layout):
        places.setdefault(place.column, {})[place.category] = at
    made = []
    for name in ranked(model, effects)[:DEPENDENCES]:
        own = places[name]
        if None not in own:
            named = {str(category): at for category, at in own.items()}
            made.append(report.category_dependence(predict, background, named, name))
            continue
        low, high = card.summaries.quantiles(own[None], np.array([0.01, 0.99])).tolist()
        grid = np.linspace(low, high, GRID)
        if np.isfinite(grid).all() and grid[0] < grid[-1]:
            edges, counts = card.summaries.features.bins(own[None])
            made.append(
                report.partial_dependence(
                    predict, background, own[None], grid, name, edges=edges, counts=counts
                )
            )
    return made


def picture_data(model: Model, card: Scorecard, target: int = 0) -> PictureData:
    """The main picture, of the first target."""
    schema, summaries, score = model.schema, card.summaries, card.scores[target]
    names = schema.encoded_names()
    shown = shown_class(model, card)
    x, truth, mean, sd = np.zeros((0, len(names))), np.zeros(0), np.zeros(0), np.zeros(0)
    if len(summaries.sample):
        kept = np.isfinite(summaries.sample.y[:, target])
        x, truth = summaries.sample.x[kept], summaries.sample.y[kept, target]
        if not model.classes:
            mean = summaries.sample.forecast[kept, target]
            sd = summaries.sample.forecast[kept, summaries.targets + target]
    if isinstance(score, ClassScore):
        own = (truth == shown).astype(np.float64)
        drawn = probability_name(model, card)
        return PictureData(
            schema.targets[target],
            names,
            x,
            own,
            mean,
            sd,
            predict=predictor(model, target, shown, total=True),
            reliability=score.reliability(),
            mean_name=drawn,
            sd_name="standard deviation of the label",
        )
    return PictureData(
        schema.targets[target],
        names,
        x,
        truth,
        mean,
        sd,
        predict=predictor(model, target, total=True),
        function=predictor(model, target),
    )
