"""The forms that the packed models of a fleet have, each made once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbnn.errors import ModelError
from kbnn.fleet.form import Form


class Forms:
    """The forms that packed models have, by name."""

    def __init__(self, plain: Mapping[str, Any] | None = None) -> None:
        self._named: dict[bytes, Form] = {}
        self._known: dict[tuple[Any, ...], Form] = {}
        self.learn(plain or {})

    def learn(self, plain: Mapping[str, Any]) -> None:
        """Know these too."""
        for text, one in plain.items():
            name = bytes.fromhex(text)
            if name not in self._named:
                form = Form.from_plain(one)
                if form.present:
                    form = self.of(form.settings, form.config, form.seed)
                self._named[name] = form  # which may have another name now

    def of(self, *said: Any) -> Form:
        """The form of these settings, this network and this seed."""
        form = self._known.get(said)
        if form is None:
            form = self._known[said] = Form(*said)
            self._named[form.name] = form
        return form

    def named(self, name: bytes) -> Form:
        """The form of that name."""
        if name not in self._named:
            raise ModelError("is damaged (the form of a model is not known)")
        return self._named[name]

    def plain(self) -> dict[str, Any]:
        """All of them as plain data."""
        return {name.hex(): form.plain for name, form in sorted(self._named.items())}
