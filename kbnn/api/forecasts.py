"""Results for Python callers: forecasts as columns, and metrics with a verdict.

`Forecasts` holds the predictive distributions of rows as numpy columns and as an Arrow table.
`Figures` holds the metrics of an evaluation by name, with a verdict in plain words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import FloatArray
from kbnn.data.batch import Anomalies
from kbnn.data.clock import make_unique_name
from kbnn.data.timestamps import parse_timestamp
from kbnn.distributions.dispatch import read_distribution
from kbnn.distributions.predictive import PredictiveDistribution
from kbnn.errors import UsageError
from kbnn.metrics.verdicts import Verdict
from kbnn.option_table import list_keywords
from kbnn.output.fields import (
    OutputOptions,
    list_class_probabilities,
    list_output_fields,
    shape_numbers,
)
from kbnn.targets.base import TargetType
from kbnn.targets.prediction import Forecast
from kbnn.wording import clean_text, format_number, format_rows

_KEYWORDS: Final = list_keywords("predict")
_PREVIEW_ROWS: Final = 5
"""Number of rows in the printed preview."""


class Forecasts:
    """Forecasts of rows, in the order of the rows.

    Columns are read by name, `forecasts["mean"]`, as `kbnn predict` writes them. Numeric targets
    have `mean`, `sd`, `lower`, `upper`, `function_sd` and `noise_sd` (arrays of rows x targets if
    there are several targets). Classes have `label`, `probability` (rows x classes) and `classes`.
    `polars.DataFrame(forecasts)`, `pyarrow.table(forecasts)` and duckdb read it as a table;
    `pandas.DataFrame(dict(forecasts))` reads its columns.

    Parameters
    ----------
    task
        Target type of the model.
    forecast
        Predictive distributions of the rows.
    interval
        Probability between `lower` and `upper`.
    decompose
        Whether the table has the columns `function_sd` and `noise_sd`.
    quantiles
        Levels of quantile columns to add.
    when
        Times of the steps, if the rows are steps ahead.
    anomalies
        Surprise and PIT of the rows, if they were requested.

    Examples
    --------
    >>> import kbnn
    >>> model = kbnn.Model("y", layers=5)
    >>> model.learn({"x": range(100), "y": range(100)})
    >>> forecasts = model.predict({"x": [1, 50]}, quantiles=[0.1])
    >>> len(forecasts), forecasts.columns
    (2, ['mean', 'sd', 'lower', 'upper', 'q10'])
    """

    def __init__(
        self,
        task: TargetType,
        forecast: Forecast,
        interval: float = 0.9,
        decompose: bool = False,
        quantiles: Sequence[float] = (),
        when: Sequence[str] = (),
        anomalies: Anomalies | None = None,
    ) -> None:
        interval = _KEYWORDS["interval"].parse_value(interval)
        quantiles = _KEYWORDS["quantiles"].parse_value(quantiles)
        self.when = list(when)
        """Times of the steps ahead, formatted as in the stream; empty for rows of a table."""
        self.interval = interval
        self._task = task
        # Forecasts pickled by earlier versions have no naive ones.
        self._forecast = forecast._replace(naive=forecast.naive.reshape(len(forecast.status), -1))
        self._anomalies = anomalies
        self._output_options = wanted = OutputOptions(
            interval, tuple(quantiles), decompose, surprise=anomalies is not None
        )
        self._fields = {f.name: f for f in list_output_fields(task, wanted)}

    def __reduce__(self) -> tuple[type[Forecasts], tuple[Any, ...]]:
        wanted = self._output_options
        args = (self._task, self._forecast, wanted.interval, wanted.decompose, wanted.quantiles)
        return Forecasts, (*args, self.when, self._anomalies)

    @property
    def targets(self) -> list[str]:
        """Names of the targets."""
        return list(self._task.targets)

    @property
    def classes(self) -> list[str]:
        """The classes, in the order of the columns of `probability`; empty for numbers."""
        return list(self._task.schema.classes)

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return list(self._fields)

    def keys(self) -> list[str]:
        """Return the names of the columns."""
        return self.columns

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a column by name: float64, or text for labels."""
        if name not in self._fields:
            raise UsageError(f"no such column: {name} (available: {', '.join(self._fields)})")
        field = self._fields[name]
        values = field.read(self._forecast, self._anomalies)
        return np.array(values, dtype=object if field.text else np.float64)

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._forecast.status)

    @property
    def mean(self) -> FloatArray:
        """Means of the predictive distributions."""
        return self._shape_values(self._forecast.mean)

    @property
    def sd(self) -> FloatArray:
        """Standard deviations of the predictive distributions."""
        return self._shape_values(self._forecast.sd)

    @property
    def function_sd(self) -> FloatArray:
        """Epistemic part of `sd`: it shrinks with more rows."""
        return self._shape_values(self._forecast.function_sd)

    @property
    def noise_sd(self) -> FloatArray:
        """Aleatoric part of `sd`: the noise of the target, which remains with more rows."""
        return self._shape_values(self._forecast.noise_sd)

    @property
    def lower(self) -> FloatArray:
        """Lower ends of the central intervals with probability `interval`."""
        return self._map_targets(lambda told: told.interval(self.interval)[0])

    @property
    def upper(self) -> FloatArray:
        """Upper ends of the central intervals with probability `interval`."""
        return self._map_targets(lambda told: told.interval(self.interval)[1])

    def quantile(self, share: float) -> FloatArray:
        """Return a quantile of every predictive distribution.

        Parameters
        ----------
        share
            Level of the quantile, between 0 and 1.

        Returns
        -------
        ndarray
            (rows,), or (rows, targets) if there are several targets.

        Raises
        ------
        UsageError
            If the level is not between 0 and 1.

        Examples
        --------
        >>> import kbnn
        >>> model = kbnn.Model("y", layers=5)
        >>> model.learn({"x": range(100), "y": range(100)})
        >>> forecasts = model.predict({"x": [1, 50]})
        >>> bool((forecasts.quantile(0.1) < forecasts.quantile(0.9)).all())
        True
        """
        _KEYWORDS["quantiles"].parse_value((share,))
        return self._map_targets(lambda told: told.quantile(share))

    def _map_targets(self, make: Callable[[PredictiveDistribution], FloatArray]) -> FloatArray:
        """Apply a function to the predictive distributions of each target."""
        params = self._forecast.stated
        values = np.empty(params.shape[:2])
        for j in range(params.shape[1]):
            values[:, j] = make(read_distribution(params[:, j]))
        return self._shape_values(values, "interval")

    @property
    def label(self) -> NDArray[Any]:
        """The most probable class of every row."""
        return self["label"]

    @property
    def probability(self) -> FloatArray:
        """Probability of every class (rows, classes)."""
        return list_class_probabilities(self._task, self._forecast)

    @property
    def surprise(self) -> FloatArray:
        """-log10 of the tail probability of each target; NaN where it is missing."""
        return self._get_anomalies().surprise.squeeze(axis=self._single_axis)

    @property
    def pit(self) -> FloatArray:
        """Predicted probability of less than each target; of labels, of those less probable."""
        return self._get_anomalies().pit.squeeze(axis=self._single_axis)

    @property
    def _single_axis(self) -> tuple[int, ...]:
        return (1,) if len(self._task.targets) == 1 else ()

    def _get_anomalies(self) -> Anomalies:
        if self._anomalies is None:
            raise UsageError("no such column: surprise (call predict with surprise=True)")
        return self._anomalies

    def _shape_values(self, values: FloatArray, what: str = "mean") -> FloatArray:
        return shape_numbers(self._task, values, what)

    def to_arrow(self) -> Any:
        """Return the columns as a `pyarrow.Table`; missing values are null.

        Forecasts of steps ahead have their times first, in a column named as the clock: as
        timestamps (in UTC if the stream has time zones), or as texts if the stream has numbers.
        """
        import pyarrow as pa

        columns = {
            name: pa.array(
                self[name], pa.string() if field.text else pa.float64(), from_pandas=True
            )
            for name, field in self._fields.items()
        }
        clock = getattr(self._task.schema, "clock", None)
        if clock is None or not self.when:
            return pa.table(columns)
        times = pa.array(self.when)
        if clock.unit == "text":
            read = [parse_timestamp(text, clock.day_first) for text in self.when]
            micros = [None if one is None else round(1e6 * one.instant) for one in read]
            times = pa.array(micros, pa.timestamp("us", "UTC" if clock.zoned else None))
        return pa.table({make_unique_name(clock.column, list(columns)): times, **columns})

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _format_cells(self) -> list[list[str]]:
        columns = [self[name][:_PREVIEW_ROWS].tolist() for name in self._fields]
        return [
            [format_number(v) if isinstance(v, float) else clean_text(str(v)) for v in row]
            for row in zip(*columns, strict=True)
        ]

    def _format_title(self) -> str:
        return f"forecasts of {', '.join(map(clean_text, self.targets))}: {format_rows(len(self))}"

    def __repr__(self) -> str:
        lines = [list(map(clean_text, self._fields)), *self._format_cells()]
        widths = [max(len(line[at]) for line in lines) for at in range(len(self._fields))]
        shown = [
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            for line in lines
        ]
        more = ["..."] if len(self) > _PREVIEW_ROWS else []
        return "\n".join([f"<{self._format_title()}>", *shown, *more])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(clean_text(name))}</th>" for name in self._fields)
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
            for row in self._format_cells()
        )
        return f"<p>{escape(self._format_title())}</p><table><tr>{head}</tr>{body}</table>"


class Figures(dict[str, Any]):
    """Metrics by name, as in `kbnn evaluate --json`: `figures["rmse"]`.

    With several targets, the metrics of each are in `figures["targets"][name]`. The verdict is
    printed when the object is shown.
    """

    def __init__(self, values: dict[str, Any], verdicts: Sequence[tuple[str, Verdict]]) -> None:
        super().__init__(values)
        self._said = list(verdicts)

    @property
    def verdict(self) -> str:
        """The metrics in plain words, one paragraph per target."""
        return "\n".join(
            f"{clean_text(name)}: {verdict.headline}\n{' '.join(verdict.sentences)}"
            for name, verdict in self._said
        )

    def __repr__(self) -> str:
        return self.verdict

    def _repr_html_(self) -> str:
        return "".join(f"<p>{escape(line)}</p>" for line in self.verdict.splitlines())
