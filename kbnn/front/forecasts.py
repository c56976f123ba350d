"""What a model says of rows: numpy columns, and a table for whoever speaks Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kbnn.core.normal import FloatArray
from kbnn.errors import UsageError
from kbnn.output.fields import check_interval, check_quantile
from kbnn.task import stated
from kbnn.task.base import Task, Wanted
from kbnn.task.forecast import Forecast
from kbnn.wording import clean, number, rows_of

_SHOWN: Final = 5
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
        task: Task,
        forecast: Forecast,
        interval: float = 0.9,
        decompose: bool = False,
        quantiles: Sequence[float] = (),
        when: Sequence[str] = (),
    ) -> None:
        check_interval(interval)
        for share in quantiles:
            check_quantile(share)
        self.when = list(when)
        """The times of steps ahead, as the stream writes them; empty for rows of a table."""
        self.interval = interval
        self._task = task
        self._forecast = forecast
        self._wanted = wanted = Wanted(interval, tuple(quantiles), decompose)
        self._fields = {f.name: f for f in task.fields(wanted)}

    def __reduce__(self) -> tuple[type[Forecasts], tuple[Any, ...]]:
        wanted = self._wanted
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
        return self._numbers(self._forecast.mean)

    @property
    def sd(self) -> FloatArray:
        """The standard deviations of the predictive distributions."""
        return self._numbers(self._forecast.sd)

    @property
    def function_sd(self) -> FloatArray:
        """The part of `sd` that more rows would lessen."""
        return self._numbers(self._forecast.function_sd)

    @property
    def noise_sd(self) -> FloatArray:
        """The part of `sd` that no model could do without."""
        return self._numbers(self._forecast.noise_sd)

    @property
    def lower(self) -> FloatArray:
        """The lower edges of the intervals that hold a share of `interval`."""
        return self._each(lambda rows: stated.interval(rows, self.interval)[0])

    @property
    def upper(self) -> FloatArray:
        """The upper edges."""
        return self._each(lambda rows: stated.interval(rows, self.interval)[1])

    def quantile(self, share: float) -> FloatArray:
        """The values that so large a share of the distributions lies below."""
        check_quantile(share)
        return self._each(lambda rows: stated.quantile(rows, share))

    def _each(self, make: Callable[[FloatArray], FloatArray]) -> FloatArray:
        """What is made of what was stated of each target."""
        told = self._forecast.stated
        made = np.empty(told.shape[:2])
        for j in range(told.shape[1]):
            made[:, j] = make(told[:, j])
        return self._numbers(made, "interval")

    @property
    def label(self) -> NDArray[Any]:
        """The most probable classes."""
        return self["label"]

    @property
    def probability(self) -> FloatArray:
        """(rows, classes): the probability of every class."""
        return self._task.probabilities(self._forecast)

    def _numbers(self, values: FloatArray, what: str = "mean") -> FloatArray:
        return self._task.numbers_of(values, what)

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

    def _cells(self) -> list[list[str]]:
        columns = [self[name][:_SHOWN].tolist() for name in self._fields]
        return [
            [number(v) if isinstance(v, float) else clean(str(v)) for v in row]
            for row in zip(*columns, strict=True)
        ]

    def _title(self) -> str:
        return f"forecasts of {', '.join(map(clean, self.targets))}: {rows_of(len(self))}"

    def __repr__(self) -> str:
        lines = [list(map(clean, self._fields)), *self._cells()]
        widths = [max(len(line[at]) for line in lines) for at in range(len(self._fields))]
        shown = [
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            for line in lines
        ]
        more = ["..."] if len(self) > _SHOWN else []
        return "\n".join([f"<{self._title()}>", *shown, *more])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(clean(name))}</th>" for name in self._fields)
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
            for row in self._cells()
        )
        return f"<p>{escape(self._title())}</p><table><tr>{head}</tr>{body}</table>"
