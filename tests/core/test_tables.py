"""Activations and kinds of labels: listed once, known to both engines, named in the help."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kbnn import Config, init
from kbnn.core import kernel as kernel_module
from kbnn.core.activations import ACTIVATIONS
from kbnn.core.likelihoods import LIKELIHOODS
from kbnn.core.reference import Records
from kbnn.core.state import ARRAYS, COUNT
from tests.commands import kbnn


def opened_anew(config: Config) -> None:
    kernel = pytest.importorskip("kbnn.core._kernel", reason="built without a compiler")
    net = kernel_module.build_net(config, kernel_module.kernel_constants())
    kernel.Session(net, init(config), Records._make, ARRAYS, COUNT._fields)


@pytest.mark.parametrize("code", [-1, len({a.code for a in ACTIVATIONS.values()})])
def test_an_activation_that_c_lacks_is_refused(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(inputs=1, hidden=(2,))
    monkeypatch.setitem(ACTIVATIONS, "relu", replace(ACTIVATIONS["relu"], code=code))
    with pytest.raises(ValueError, match=f"the kernel knows no activation {code}"):
        opened_anew(config)


@pytest.mark.parametrize("code", [-1, len(LIKELIHOODS)])
def test_an_observation_that_c_lacks_is_refused(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config(inputs=1, hidden=(2,))
    monkeypatch.setattr(LIKELIHOODS["gaussian"], "code", code)
    with pytest.raises(ValueError, match=f"the kernel knows no observation {code}"):
        opened_anew(config)


def test_unknown_names_raise() -> None:
    with pytest.raises(ValueError, match="unknown activation 'swish' \\(known: linear, relu"):
        Config(inputs=1, activation="swish")
    with pytest.raises(ValueError, match="unknown observation 'tally' \\(known: gaussian, "):
        Config(inputs=1, observation="tally")


def test_codes_are_not_shared_by_two_kinds() -> None:
    codes = sorted(kind.code for kind in LIKELIHOODS.values())
    assert codes == list(range(len(LIKELIHOODS)))


def test_the_help_of_train_names_every_activation() -> None:
    ran = kbnn("train", "--help-all")
    assert ran.code == 0
    words = ran.out.replace(",", " ").replace("│", " ").split()
    assert set(ACTIVATIONS) <= set(words)
