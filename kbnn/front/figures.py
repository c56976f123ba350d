"""How good forecasts were: the figures by name, and a verdict in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from kbnn.score.verdict import Verdict
from kbnn.wording import clean_text


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
