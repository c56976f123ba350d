"""Parameters of the scikit-learn and river estimators, from the table of options."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, cleandoc
from typing import Any, Final, NamedTuple, TypeVar

from kbnn.option_table import list_keywords

Class = TypeVar("Class", bound=type)
_SECTIONS: Final = ("Attributes\n------", "Examples\n------")
"""The sections of a docstring before which the parameters are described."""


class EstimatorParameter(NamedTuple):
    """A parameter of an estimator."""

    default: Any
    description: str


def find_parameters(*names: str) -> dict[str, EstimatorParameter]:
    """Return the parameters of the network, and the options of these names.

    Parameters
    ----------
    *names
        Further options of `kbnn train`.

    Returns
    -------
    dict of str to EstimatorParameter
        Parameters by name; an option that estimators have always called by its former name keeps
        it.

    Examples
    --------
    >>> from kbnn.api.estimator_parameters import find_parameters
    >>> find_parameters("lags")["layers"].default
    50
    """
    options = list_keywords()
    chosen = [option for option in options.values() if option.estimator]
    chosen += [options[name] for name in names]
    return {
        option.former or option.name: EstimatorParameter(option.python_default, option.help)
        for option in chosen
    }


def add_parameters(
    parameters: Mapping[str, EstimatorParameter], positional: int
) -> Callable[[Class], Class]:
    """Give an estimator class its constructor and the description of its parameters.

    Parameters
    ----------
    parameters
        The parameters by name, which become attributes.
    positional
        How many of them may be given by position.

    Returns
    -------
    callable
        A decorator of the class.

    Examples
    --------
    >>> from kbnn.api.estimator_parameters import EstimatorParameter, add_parameters
    >>> @add_parameters({"layers": EstimatorParameter(50, "Set the hidden layers.")}, 1)
    ... class Example:
    ...     pass
    >>> Example(20).layers, Example().layers
    (20, 50)
    """
    kinds: list[Any] = [Parameter.POSITIONAL_OR_KEYWORD] * positional
    kinds += [Parameter.KEYWORD_ONLY] * (len(parameters) - positional)
    signature = Signature(
        [Parameter("self", Parameter.POSITIONAL_ONLY)]
        + [
            Parameter(name, kind, default=one.default)
            for kind, (name, one) in zip(kinds, parameters.items(), strict=True)
        ]
    )

    def add_to_class(cls: Class) -> Class:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            given = signature.bind(self, *args, **kwargs)
            given.apply_defaults()
            for name in parameters:
                setattr(self, name, given.arguments[name])

        __init__.__signature__ = signature  # type: ignore[attr-defined]  # what both libraries read
        __init__.__module__ = cls.__module__
        __init__.__qualname__ = f"{cls.__qualname__}.__init__"
        cls.__init__ = __init__  # type: ignore[misc]  # made from the table of options
        cls.__doc__ = _describe(cleandoc(cls.__doc__ or ""), parameters)
        return cls

    return add_to_class


def _describe(doc: str, parameters: Mapping[str, EstimatorParameter]) -> str:
    """Insert the section of the parameters into a docstring."""
    lines = ["Parameters", "----------"]
    for name, one in parameters.items():
        lines.append(f"{name} : default {one.default!r}")
        lines.append(textwrap.indent(textwrap.fill(one.description, 92), "    "))
    places = [doc.index(section) for section in _SECTIONS if section in doc]
    place = min(places, default=len(doc))
    return "\n".join([doc[:place].rstrip(), "", *lines, "", doc[place:]])
