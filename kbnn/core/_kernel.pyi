from kbnn.core.layout import IntArray
from kbnn.core.normal import FloatArray

class Net:
    def __init__(
        self,
        widths: IntArray,
        options: IntArray,
        numbers: FloatArray,
        pieces: IntArray,
        block_pieces: IntArray,
    ) -> None: ...

def run(
    net: Net,
    state: list[FloatArray],
    counts: IntArray,
    x: FloatArray,
    x_var: FloatArray | None,
    y: FloatArray | None,
    weight: FloatArray | None,
    records: list[FloatArray],
    rows: int,
    labels: int,
    fresh: bool,
    learn: bool,
) -> None: ...
def normal_cdf(u: FloatArray, out: FloatArray) -> None: ...
def scale_rows(
    columns: FloatArray, raw: FloatArray, out: FloatArray, rows: int, fixed: FloatArray
) -> int: ...
def instructions() -> str: ...
def use(name: str) -> bool: ...
