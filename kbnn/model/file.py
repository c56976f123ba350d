"""The model file: a NumPy archive (.npz) that any language can read.

It is a zip file without compression. `header.json` holds

    format     "kbnn model"
    version    of this format, 10
    kbnn       the version of the library that wrote it
    arrays     each array's shape and type, "<f8" or "<i8"
    model      settings, schema, scales, counts, scores, position in the stream

and NAME.npy each array, in row-major order. The same model gives the same bytes: names are sorted
and every date is 1 January 1980. The file contains no code.

The reader trusts nothing: as nothing is compressed, no member can be larger than the file, and
shapes are compared with sizes before memory is allocated.
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
VERSION: Final = 10
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
        # A file name that is not UTF-8 has lone surrogates, which JSON writes as \\udcxx.
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
    member.create_system = 3  # the same bytes on every system
    member.external_attr = 0o644 << 16
    return member


def exists(path: str) -> bool:
    """Whether the path may hold a model; an empty file does not count."""
    return os.path.exists(path) and (not os.path.isfile(path) or os.path.getsize(path) > 0)


def check_overwrite(path: str) -> None:
    """Refuse to overwrite a file that never was a model; a truncated model may be overwritten."""
    with _translate_read_errors(path):
        own = _begins_as_model(path)
    if not own:
        raise ModelError(f"{path}: is not a kbnn model, and --fresh would overwrite it")


def is_model_file(path: str) -> bool:
    """Whether a file starts like a model; False where it cannot be read."""
    try:
        return os.path.isfile(path) and _begins_as_model(path)
    except OSError:
        return False


def _begins_as_model(path: str) -> bool:
    with open(path, "rb") as file:
        start = file.read(64)
    return start.startswith(b"PK\x03\x04") and HEADER.encode() in start


def load(path: str) -> OnlineModel:
    """Read a model; ModelError if the file is not one."""
    return _build_model(path, *read(path))


def check_readable(path: str) -> None:
    """Read a file that was just written, including its record; ModelError if that fails."""
    try:
        _ = load(path).card
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelError(f"{path}: is damaged (its record)") from error


def load_bytes(content: bytes, name: str = "the bytes") -> OnlineModel:
    """Read a model from the bytes of a model file."""
    if not isinstance(content, bytes | bytearray | memoryview):
        raise ArgumentError(f"{name}: must be bytes, not {type(content).__name__}")
    with _translate_read_errors(name):
        state = _read_archive(name, io.BytesIO(content))
    return _build_model(name, *state)


def version_of(content: bytes, name: str = "the bytes") -> int:
    """Return the format version of the bytes of a model file."""
    with _translate_read_errors(name), zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = _check_members(name, archive, len(content))
        return int(_read_header(name, archive, members)["version"])


def to_bytes(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> bytes:
    """Return the bytes of a model file."""
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
    """Read the header and the arrays of a model file."""
    with _translate_read_errors(path):
        if os.path.isdir(path):
            raise ModelError(f"{path}: is a folder, not a model file")
        if os.path.exists(path) and not os.path.isfile(path):
            raise ModelError(f"{path}: is a pipe or a device, not a model file")
        with open(path, "rb") as file:
            return _read_archive(path, file)


@contextmanager
def _translate_read_errors(path: str) -> Iterator[None]:
    """Translate errors of reading a file to ModelError."""
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
        for name, declared in header["arrays"].items():
            if f"{name}.npy" not in members:
                raise ModelError(f"{path}: is damaged (array '{name}' is missing)")
            arrays[name] = _decode_array(path, archive.read(members[f"{name}.npy"]), name, declared)
    try:
        return migrate_state(header["version"], header["model"], arrays)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def _check_members(path: str, archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """Return the members by name; none may be larger than the file."""
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
    declared = header.get("arrays")
    if not isinstance(header.get("model"), dict) or not isinstance(declared, dict):
        raise ModelError(f"{path}: is damaged (its header)")
    return header


def _decode_array(path: str, content: bytes, name: str, declared: object) -> npt.NDArray[Any]:
    """Decode an array; its own header, the file's header and its size must agree.

    The header of a .npy file is a Python literal. It is matched by a pattern, never evaluated.
    """
    start = 10 + int.from_bytes(content[8:10], "little")
    found = _NPY.fullmatch(content[:start])
    if found is None:
        raise ModelError(f"{path}: is damaged (array '{name}' has an unknown type)")
    kind = np.dtype(found["kind"].decode())
    shape = tuple(int(length) for length in found["shape"].replace(b",", b" ").split())
    agreed = declared == {"shape": list(shape), "type": kind.str}
    if not agreed or math.prod(shape) * kind.itemsize != len(content) - start:
        raise ModelError(f"{path}: is damaged (array '{name}' has another shape or type)")
    return np.frombuffer(content, kind, offset=start).reshape(shape).copy()


def _lower_first_letter(text: str) -> str:
    """Prepare an error text as the second half of a message."""
    return (text[:1].lower() + text[1:]).rstrip(".")
