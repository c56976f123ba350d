"""The model file: a NumPy archive (.npz) that any language can read.

It is a zip file without compression. `header.json` holds

    format     "kbnn model"
    version    of this format, 6
    kbnn       the version of the library that wrote it
    arrays     each array's shape and type, "<f8" or "<i8"
    model      settings, schema, scales, counts, scores, position in the stream

and NAME.npy each array, in row-major order. The same model gives the same bytes: names are sorted
and every date is 1 January 1980. Nothing in it is code.

A reader believes nothing: as nothing is compressed, no member can be larger than the file, and
shapes are compared with sizes before memory is taken.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from kbnn.errors import ArgumentError, ModelError
from kbnn.model.migrations import migrate_state
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import from_state

Arrays = dict[str, npt.NDArray[Any]]

FORMAT: Final = "kbnn model"
VERSION: Final = 6
HEADER: Final = "header.json"
MAX_HEADER_BYTES: Final = 64 << 20
MAX_FILE_BYTES: Final = 8 << 30
MAX_ARRAYS: Final = 4096
_NPY: Final = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '(?P<kind><f8|<i8)', 'fortran_order': False, "
    rb"'shape': \((?P<shape>(\d{1,15}(, \d{1,15})*,?)?)\), \}\s*",
    re.DOTALL,
)
_DATE: Final = (1980, 1, 1, 0, 0, 0)


def write(file: IO[bytes], header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write a model's state (`kbnn.model.serialize.to_state`) to an open file."""
    from kbnn import __version__

    plain = {name: _to_plain_array(name, arrays[name]) for name in sorted(arrays)}
    whole = {
        "format": FORMAT,
        "version": VERSION,
        "kbnn": __version__,
        "arrays": {
            name: {"shape": list(array.shape), "type": array.dtype.str}
            for name, array in plain.items()
        },
        "model": header,
    }
    text = json.dumps(whole, allow_nan=False, ensure_ascii=False, sort_keys=True, indent=1)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        # A file name that is no UTF-8 is kept as halves of characters, which JSON spells \\udcxx.
        archive.writestr(_make_member(HEADER), text.encode(errors="backslashreplace"))
        for name, array in plain.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, array, version=(1, 0), allow_pickle=False)
            archive.writestr(_make_member(f"{name}.npy"), content.getbuffer())


def _to_plain_array(name: str, array: npt.ArrayLike) -> npt.NDArray[Any]:
    values = np.asarray(array)
    kind = "<i8" if values.dtype.kind in "iub" else "<f8"
    return np.require(values, dtype=kind, requirements="C")


def _make_member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, _DATE)
    member.create_system = 3  # the same on every system
    member.external_attr = 0o644 << 16
    return member


def exists(path: str) -> bool:
    """Whether there is something that may be a model; an empty file is none yet."""
    return os.path.exists(path) and (not os.path.isfile(path) or os.path.getsize(path) > 0)


def check_overwrite(path: str) -> None:
    """Refuse to write over a file that never was a model; one that is cut short was."""
    with _translate_read_errors(path):
        own = _begins_as_model(path)
    if not own:
        raise ModelError(f"{path}: is not a kbnn model, and --fresh would write over it")


def is_model_file(path: str) -> bool:
    """Whether a file is or was a model; False where it cannot be read."""
    try:
        return os.path.isfile(path) and _begins_as_model(path)
    except OSError:
        return False


def _begins_as_model(path: str) -> bool:
    with open(path, "rb") as file:
        start = file.read(64)
    return start.startswith(b"PK\x03\x04") and HEADER.encode() in start


def load(path: str) -> OnlineModel:
    """Read a model; ModelError says in one sentence why a file cannot be one."""
    return _build_model(path, *read(path))


def check_readable(path: str) -> None:
    """Read a file that was just written, its record included; ModelError if it cannot be read."""
    try:
        _ = load(path).card
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelError(f"{path}: is damaged (its record)") from error


def load_bytes(content: bytes, name: str = "the bytes") -> OnlineModel:
    """The same from what a model file holds."""
    if not isinstance(content, bytes | bytearray | memoryview):
        raise ArgumentError(f"{name}: must be bytes, not {type(content).__name__}")
    with _translate_read_errors(name):
        state = _read_archive(name, io.BytesIO(content))
    return _build_model(name, *state)


def version_of(content: bytes, name: str = "the bytes") -> int:
    """The version of the format that the bytes of a model file have."""
    with _translate_read_errors(name), zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = _check_members(name, archive, len(content))
        return int(_read_header(name, archive, members)["version"])


def to_bytes(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> bytes:
    """What a model file holds."""
    file = io.BytesIO()
    write(file, header, arrays)
    return file.getvalue()


def _build_model(path: str, header: dict[str, Any], arrays: Arrays) -> OnlineModel:
    try:
        return from_state(header, arrays, path)
    except ModelError as error:
        raise ModelError(f"{path}: {_lower_first_letter(str(error))}") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelError(f"{path}: is damaged (its parts do not fit together)") from error


def read(path: str) -> tuple[dict[str, Any], Arrays]:
    """The header and the arrays of a model file."""
    with _translate_read_errors(path):
        if os.path.isdir(path):
            raise ModelError(f"{path}: is a folder, not a model file")
        if os.path.exists(path) and not os.path.isfile(path):
            raise ModelError(f"{path}: is a pipe or a device, not a model file")
        with open(path, "rb") as file:
            return _read_archive(path, file)


@contextmanager
def _translate_read_errors(path: str) -> Iterator[None]:
    """Whatever a file is refused for, as one sentence."""
    try:
        yield
    except FileNotFoundError as error:
        raise ModelError(f"{path}: no such model file") from error
    except OSError as error:
        raise ModelError(
            f"{path}: cannot be read ({_lower_first_letter(error.strerror or '')})"
        ) from error
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        raise ModelError(f"{path}: is damaged or cut short") from error


def _read_archive(path: str, file: IO[bytes]) -> tuple[dict[str, Any], Arrays]:
    start = file.read(4)
    size = file.seek(0, os.SEEK_END)
    if not start:
        raise ModelError(f"{path}: is empty, not a model file")
    if start != b"PK\x03\x04":
        raise ModelError(f"{path}: is not a model file")
    if size > MAX_FILE_BYTES:
        raise ModelError(f"{path}: is too large for a model file ({size >> 30} GiB)")
    with zipfile.ZipFile(file) as archive:
        members = _check_members(path, archive, size)
        header = _read_header(path, archive, members)
        arrays = {}
        for name, said in header["arrays"].items():
            if f"{name}.npy" not in members:
                raise ModelError(f"{path}: is damaged (array '{name}' is missing)")
            arrays[name] = _decode_array(path, archive.read(members[f"{name}.npy"]), name, said)
    try:
        return migrate_state(header["version"], header["model"], arrays)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def _check_members(path: str, archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """The members by name, none of them larger than what is really there."""
    listed = archive.infolist()
    members = {member.filename: member for member in listed}
    if HEADER not in members:
        raise ModelError(f"{path}: is not a kbnn model (a zip or .npz file of another program)")
    if len(listed) > MAX_ARRAYS or len(members) != len(listed):
        raise ModelError(f"{path}: is damaged (its list of contents)")
    if any(member.compress_type != zipfile.ZIP_STORED for member in listed):
        raise ModelError(f"{path}: is compressed, which a kbnn model never is")
    stored = sum(member.file_size for member in listed)
    if stored > size or any(member.file_size != member.compress_size for member in listed):
        raise ModelError(f"{path}: is damaged (it claims more bytes than it has)")
    return members


def _read_header(
    path: str, archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]
) -> dict[str, Any]:
    if members[HEADER].file_size > MAX_HEADER_BYTES:
        raise ModelError(f"{path}: is damaged (its header is too large)")
    header = json.loads(archive.read(members[HEADER]))
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ModelError(f"{path}: is not a kbnn model")
    version = header.get("version")
    if not isinstance(version, int) or version < 1:
        raise ModelError(f"{path}: is damaged (its version)")
    if version > VERSION:
        from kbnn import __version__

        raise ModelError(
            f"{path}: was written by a newer kbnn, {header.get('kbnn')} (format {version}); "
            f"this is {__version__}, which reads format {VERSION}"
        )
    said = header.get("arrays")
    if not isinstance(header.get("model"), dict) or not isinstance(said, dict):
        raise ModelError(f"{path}: is damaged (its header)")
    return header


def _decode_array(path: str, content: bytes, name: str, said: object) -> npt.NDArray[Any]:
    """An array whose own header, the file's header and its size all agree.

    The header of a .npy file is read by a pattern: it is Python, and Python it stays.
    """
    start = 10 + int.from_bytes(content[8:10], "little")
    found = _NPY.fullmatch(content[:start])
    if found is None:
        raise ModelError(f"{path}: is damaged (array '{name}' is of an unknown kind)")
    kind = np.dtype(found["kind"].decode())
    shape = tuple(int(length) for length in found["shape"].replace(b",", b" ").split())
    agreed = said == {"shape": list(shape), "type": kind.str}
    if not agreed or math.prod(shape) * kind.itemsize != len(content) - start:
        raise ModelError(f"{path}: is damaged (array '{name}' has another shape or type)")
    return np.frombuffer(content, kind, offset=start).reshape(shape).copy()


def _lower_first_letter(text: str) -> str:
    """An error's sentence as the second half of ours."""
    return (text[:1].lower() + text[1:]).rstrip(".")
