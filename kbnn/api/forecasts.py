"""What a model says of rows: numpy columns, and a table for whoever speaks Arrow.

How good forecasts were: the figures by name, and a verdict in plain words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import FloatArray
from kbnn.distributions import dispatch
from kbnn.errors import UsageError
from kbnn.metrics.verdicts import Verdict
from kbnn.output.writers import check_interval_level, check_quantile_level
from kbnn.targets.base import OutputOptions, TargetType
from kbnn.targets.prediction import Forecast
from kbnn.wording import clean_text, format_number, format_rows

_PREVIEW_ROWS: Final = 5
"""Rows of a forecast that are shown."""


class Forecasts:
    """The forecasts of rows, in their order.

    Columns by name: `forecasts["mean"]`, as `kbnn predict` writes them. For numbers there are
    `mean`, `sd`, `lower`, `upper`, `function_sd` and `noise_sd` (for several targets each is an
    array of rows x targets), for classes `label`, `probability` (rows x classes) and `classes`.
    `polars.DataFrame(forecasts)`, `pyarrow.table(forecasts)` and duckdb take it as the table it is;
    `pandas.DataFrame(dict(forecasts))` takes its columns.
    """

    def __init__(
        self,
        task: TargetType,
        forecast: Forecast,
        interval: float = 0.9,
        decompose: bool = False,
        quantiles: Sequence[float] = (),
        when: Sequence[str] = (),
    ) -> None:
        check_interval_level(interval)
        for share in quantiles:
            check_quantile_level(share)
        self.when = list(when)
        """The times of steps ahead, as the stream writes them; empty for rows of a table."""
        self.interval = interval
        self._task = task
        self._forecast = forecast
        self._output_options = wanted = OutputOptions(interval, tuple(quantiles), decompose)
        self._fields = {f.name: f for f in task.output_fields(wanted)}

    def __reduce__(self) -> tuple[type[Forecasts], tuple[Any, ...]]:
        wanted = self._output_options
        said = (self._task, self._forecast, wanted.interval, wanted.decompose, wanted.quantiles)
        return Forecasts, (*said, self.when)

    @property
    def targets(self) -> list[str]:
        """What was predicted."""
        return list(self._task.targets)

    @property
    def classes(self) -> list[str]:
        """The classes, in the order of the columns of `probability`; none for numbers."""
        return self._task.class_names

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self._fields)

    def keys(self) -> list[str]:
        """The names of the columns."""
        return self.columns

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A column by its name: float64, or texts where it is a label."""
        if name not in self._fields:
            raise UsageError(f"no such column: {name} (there are {', '.join(self._fields)})")
        field = self._fields[name]
        values = field.values(self._forecast)
        return np.array(values, dtype=object if field.text else np.float64)

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._forecast.status)

    @property
    def mean(self) -> FloatArray:
        """The expected values."""
        return self._shape_values(self._forecast.mean)

    @property
    def sd(self) -> FloatArray:
        """The standard deviations of the predictive distributions."""
        return self._shape_values(self._forecast.sd)

    @property
    def function_sd(self) -> FloatArray:
        """The part of `sd` that more rows would lessen."""
        return self._shape_values(self._forecast.function_sd)

    @property
    def noise_sd(self) -> FloatArray:
        """The part of `sd` that no model could do without."""
        return self._shape_values(self._forecast.noise_sd)

    @property
    def lower(self) -> FloatArray:
        """The lower edges of the intervals that hold a share of `interval`."""
        return self._map_targets(lambda rows: dispatch.interval(rows, self.interval)[0])

    @property
    def upper(self) -> FloatArray:
        """The upper edges."""
        return self._map_targets(lambda rows: dispatch.interval(rows, self.interval)[1])

    def quantile(self, share: float) -> FloatArray:
        """The values that so large a share of the distributions lies below."""
        check_quantile_level(share)
        return self._map_targets(lambda rows: dispatch.quantile(rows, share))

    def _map_targets(self, make: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """What is made of what was stated of each target."""
        told = self._forecast.stated
        made = np.empty(told.shape[:2])
        for j in range(told.shape[1]):
            made[:, j] = make(told[:, j])
        return self._shape_values(made, "interval")

    @property
    def label(self) -> NDArray[Any]:
        """The most probable classes."""
        return self["label"]

    @property
    def probability(self) -> FloatArray:
        """(rows, classes): the probability of every class."""
        return self._task.class_probabilities(self._forecast)

    def _shape_values(self, values: FloatArray, what: str = "mean") -> FloatArray:
        return self._task.numeric_values(values, what)

    def to_arrow(self) -> Any:
        """The columns as a `pyarrow.Table`; what is not known is null."""
        import pyarrow as pa

        return pa.table(
            {
                name: pa.array(
                    self[name], pa.string() if field.text else pa.float64(), from_pandas=True
                )
                for name, field in self._fields.items()
            }
        )

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
    """The figures of `kbnn evaluate --json`, by name: `figures["rmse"]`.

    For several targets those of each are under `figures["targets"][name]`.
    """

    def __init__(self, values: dict[str, Any], verdicts: Sequence[tuple[str, Verdict]]) -> None:
        super().__init__(values)
        self._said = list(verdicts)

    @property
    def verdict(self) -> str:
        """The figures in plain words."""
        return "\n".join(
            f"{clean_text(name)}: {said.headline}\n{' '.join(said.sentences)}"
            for name, said in self._said
        )

    def __repr__(self) -> str:
        return self.verdict

    def _repr_html_(self) -> str:
        return "".join(f"<p>{escape(line)}</p>" for line in self.verdict.splitlines())
