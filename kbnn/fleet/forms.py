"""The forms that the packed models of a fleet have, each made once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbnn.errors import ModelError
from kbnn.fleet.form import PackedLayout


class PackedLayouts:
    """The forms that packed models have, by name."""

    def __init__(self, plain: Mapping[str, Any] | None = None) -> None:
        self._by_name: dict[bytes, PackedLayout] = {}
        self._by_settings: dict[tuple[Any, ...], PackedLayout] = {}
        self.add_layouts(plain or {})

    def add_layouts(self, plain: Mapping[str, Any]) -> None:
        """Know these too."""
        for text, one in plain.items():
            name = bytes.fromhex(text)
            if name not in self._by_name:
                form = PackedLayout.from_json(one)
                if form.is_current:
                    form = self.get_or_create(form.settings, form.config, form.seed)
                self._by_name[name] = form  # which may have another name now

    def get_or_create(self, *said: Any) -> PackedLayout:
        """The form of these settings, this network and this seed."""
        form = self._by_settings.get(said)
        if form is None:
            form = self._by_settings[said] = PackedLayout(*said)
            self._by_name[form.name] = form
        return form

    def find_by_name(self, name: bytes) -> PackedLayout:
        """The form of that name."""
        if name not in self._by_name:
            raise ModelError("is damaged (the form of a model is not known)")
        return self._by_name[name]

    def to_json(self) -> dict[str, Any]:
        """All of them as plain data."""
        return {name.hex(): form.json_data for name, form in sorted(self._by_name.items())}
