"""What a user chooses about a model, and the network that follows from it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from kbnn.core.config import Config
from kbnn.errors import ModelError
from kbnn.task.base import Task


@dataclass(frozen=True)
class Settings:
    """The options of a model; `noise` is "auto", "constant" or a standard deviation."""

    hidden: tuple[int, ...] = (50,)
    activation: str = "relu"
    covariance: str = "auto"
    group_size: int | None = None
    noise: str | float = "auto"
    hidden_noise: float = 0.0
    robust: bool = True
    drift: bool = True
    ensemble: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "hidden", tuple(self.hidden))
        if isinstance(self.noise, str) and self.noise not in ("auto", "constant"):
            raise ValueError(f"noise must be auto, constant or a number, got {self.noise!r}")
        if not isinstance(self.noise, str) and not self.noise >= 0.0:
            raise ValueError(f"noise must be a standard deviation >= 0, got {self.noise}")
        if not 1 <= self.ensemble <= 64:
            raise ValueError(f"ensemble must be between 1 and 64, got {self.ensemble}")
        self._config(1, 1, "gaussian", "group", None)

    def config(self, task: Task, inputs: int, outputs: int, target_scale: float) -> Config:
        """The network for so many inputs and outputs."""
        noise = None
        if task.noisy and not isinstance(self.noise, str):
            noise = (float(self.noise) / target_scale) ** 2
        suited = task.covariance(outputs)
        return self._config(inputs, outputs, task.observation, suited, noise)

    def _config(
        self,
        inputs: int,
        outputs: int,
        observation: str,
        suited: str,
        noise: float | None,
    ) -> Config:
        covariance = suited if self.covariance == "auto" else self.covariance
        return Config(
            inputs=inputs,
            outputs=outputs,
            hidden=self.hidden,
            activation=self.activation,
            covariance=covariance,  # type: ignore[arg-type]  # Config checks the word
            group_size=self.group_size,
            observation=observation,
            noise=noise,
            noise_head=self.noise == "auto",
            hidden_noise=self.hidden_noise,
            robust=self.robust,
            drift=self.drift,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data for the model file."""
        return {**asdict(self), "hidden": list(self.hidden)}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Settings:
        """The inverse of `to_json`."""
        try:
            return cls(**{**plain, "hidden": tuple(plain["hidden"])})
        except (KeyError, TypeError, ValueError) as error:
            raise ModelError(f"the model's settings are damaged ({error})") from error
