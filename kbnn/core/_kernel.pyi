from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kbnn.array_types import FloatArray, IntArray
from kbnn.core.config import Config
from kbnn.core.reference import Records
from kbnn.core.state import State

class Constants:
    names: tuple[str, ...]
    def __init__(
        self, ask: Callable[[str], float], nodes: FloatArray, node_weights: FloatArray
    ) -> None: ...

class Net:
    def __init__(
        self,
        constants: Constants,
        widths: IntArray,
        activations: FloatArray,
        options: Sequence[int],
        numbers: Sequence[float],
        pieces: IntArray,
        block_pieces: IntArray,
    ) -> None: ...

class Session:
    def __init__(
        self,
        net: Net,
        state: State,
        records: Callable[[tuple[Any, ...]], Records],
        names: tuple[str, ...],
        counted: tuple[str, ...],
    ) -> None: ...
    @property
    def config(self) -> Config: ...
    @property
    def counts(self) -> dict[str, int]: ...
    @property
    def noise(self) -> FloatArray: ...
    def learn(
        self,
        x: FloatArray,
        y: FloatArray,
        x_var: FloatArray | None = None,
        weight: FloatArray | None = None,
        again: bool = False,
    ) -> Records: ...
    def replay(
        self,
        x: FloatArray,
        y: FloatArray,
        x_var: FloatArray | None = None,
        weight: FloatArray | None = None,
        means_alone: bool = False,
    ) -> None: ...
    def predict(self, x: FloatArray, x_var: FloatArray | None = None) -> Records: ...
    @property
    def has_learned(self) -> bool: ...
    def begin_log(self) -> None: ...
    def rewind_log(self) -> None: ...
    def end_log(self) -> None: ...
    def state(self) -> State: ...

class BatchedSession:
    def __init__(
        self, net: Net, records: Callable[[tuple[Any, ...]], Records], form: Sequence[int]
    ) -> None: ...
    def predict(self, models: FloatArray, at: IntArray, x: FloatArray) -> Records: ...
    def learn(
        self,
        models: FloatArray,
        order: IntArray,
        at: IntArray,
        x: FloatArray,
        y: FloatArray,
        weight: FloatArray | None,
        alone: bytes,
        fixed: FloatArray,
        manner: IntArray,
    ) -> tuple[NDArray[np.uint8], IntArray, tuple[FloatArray, ...]]: ...
    def count(
        self,
        models: FloatArray,
        at: IntArray,
        terms: FloatArray,
        drawn: IntArray,
        bins: IntArray,
        y: FloatArray,
    ) -> None: ...

def normal_log_cdf(u: FloatArray, out: FloatArray) -> None: ...
def normal_cdf(u: FloatArray, out: FloatArray) -> None: ...
def follow_weights(
    scores: FloatArray,
    mean: FloatArray,
    var: FloatArray,
    y: FloatArray,
    weight: FloatArray,
    scale: FloatArray,
    benefit: FloatArray,
    used: FloatArray,
    rows: float,
    limits: tuple[float, ...],
) -> None: ...
def scale_rows(
    columns: FloatArray, y: FloatArray, x: FloatArray, fixed: FloatArray, constants: Constants
) -> tuple[FloatArray, FloatArray, bool]: ...
def apply_temperature(
    known: FloatArray,
    probability: FloatArray,
    label: FloatArray | None,
    weight: FloatArray | None,
    grid: FloatArray,
    constants: Constants,
) -> FloatArray: ...
def update_calibration(
    tails: FloatArray,
    mean: FloatArray,
    sd: FloatArray,
    y: FloatArray,
    mix: bool,
    track: bool,
    constants: Constants,
) -> FloatArray: ...
def calibrate_outputs(
    tails: FloatArray,
    said: tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray],
    y: FloatArray | None,
    mix: bool,
    track: bool,
    constants: Constants,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]: ...
def update_count_mixture(
    tail: FloatArray, y: FloatArray, stated: FloatArray, constants: Constants
) -> None: ...
def update_count_intervals(
    tail: FloatArray,
    y: FloatArray,
    u: FloatArray,
    none: FloatArray,
    track: bool,
    stated: FloatArray,
    constants: Constants,
) -> None: ...
def mixture_edges(
    stated: FloatArray, beyond: float, z: float, plain: bool, constants: Constants
) -> FloatArray: ...
def detect_anomalies(
    state: tuple[FloatArray, ...], rows: FloatArray, threshold: float, constants: FloatArray
) -> FloatArray: ...
def score_rows(y: FloatArray, stated: FloatArray, constants: Constants) -> FloatArray: ...
def read_plain_row(
    x: Mapping[str, Any], names: list[str], smallest: float, largest: float
) -> FloatArray | None: ...
def copy_rows(arrays: list[NDArray[Any]], at: int, parts: tuple[NDArray[Any], ...]) -> bool: ...
def sum_in_order(sums: FloatArray, columns: list[FloatArray]) -> FloatArray: ...
def update_constant(
    sums: FloatArray, y: FloatArray, weight: FloatArray, limit: float
) -> FloatArray: ...
def keep_information(
    cov: FloatArray, prior_var: FloatArray, dims: IntArray, share: float
) -> None: ...
def learn_series(
    state: tuple[FloatArray, ...],
    rules: FloatArray,
    constants: FloatArray,
    prior_var: FloatArray,
    y: FloatArray,
    steps: int,
) -> FloatArray: ...
def forecast_series(
    state: tuple[FloatArray, ...],
    rules: FloatArray,
    constants: FloatArray,
    prior_var: FloatArray,
    steps: int,
) -> FloatArray: ...
def exceeds_limits(values: FloatArray, smallest: float, largest: float) -> tuple[bool, bool]: ...
def stack_columns(columns: list[FloatArray], x: FloatArray) -> None: ...
def count_lines(text: bytes) -> int: ...
def parse_decimals(text: bytes, delimiter: str, columns: int) -> FloatArray | None: ...
def instruction_set() -> str: ...
def use_instruction_set(name: str) -> bool: ...
