"""The model file: exact, deterministic, and read with suspicion."""

from __future__ import annotations

import io
import json
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kbnn.errors import ModelError
from kbnn.model import file as modelfile
from kbnn.model.serialize import to_state
from tests.training_data import (
    rows_of_classes,
    rows_of_numbers,
    state_of,
    train,
    write_csv,
)


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    data = write_csv(folder / "a.csv", rows_of_numbers(150))
    train([data], folder / "m.npz")
    return folder / "m.npz"


def written(header: dict[str, Any], arrays: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    modelfile.write(file, header, arrays)
    return file.getvalue()


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive_of(path: Path, parts: dict[str, bytes], kind: int = zipfile.ZIP_STORED) -> str:
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return str(path)


def refusal(path: str | Path) -> str:
    with pytest.raises(ModelError) as caught:
        modelfile.load(str(path))
    return str(caught.value).replace(str(path), "M")


@pytest.mark.parametrize("rows", [20, 150])
@pytest.mark.parametrize("classes", [False, True])
def test_round_trip_is_exact_to_the_byte(tmp_path: Path, rows: int, classes: bool) -> None:
    lines = rows_of_classes(rows) if classes else rows_of_numbers(rows)
    data = write_csv(tmp_path / "a.csv", lines, "a,b,label" if classes else "a,b,kind,y")
    model = train([data], tmp_path / "m.npz").overall_model
    loaded = modelfile.load(str(tmp_path / "m.npz"))
    assert state_of(loaded) == state_of(model)
    assert written(*to_state(loaded)) == (tmp_path / "m.npz").read_bytes()


def test_numpy_reads_the_arrays(model_path: Path) -> None:
    _, arrays = modelfile.read(str(model_path))
    with np.load(model_path, allow_pickle=False) as archive:
        assert set(archive.files) == {*arrays, "header.json"}
        for name, array in arrays.items():
            np.testing.assert_array_equal(archive[name], array)


def test_header_is_plain_json_and_holds_no_dates(model_path: Path) -> None:
    with zipfile.ZipFile(model_path) as archive:
        assert {member.date_time for member in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        header = json.loads(archive.read("header.json"))
    assert (header["format"], header["version"]) == ("kbnn model", modelfile.VERSION)
    assert header["model"]["schema"]["task"] == "regression"


def test_foreign_files_get_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("a,b\n1,2\n")
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    assert refusal(tmp_path / "nothing") == "M: no such model file"
    assert refusal(tmp_path) == "M: is a folder, not a model file"
    assert refusal(tmp_path / "empty") == "M: is empty, not a model file"
    assert refusal(tmp_path / "text") == "M: is not a model file"
    assert refusal(tmp_path / "other.npz") == (
        "M: is not a kbnn model (a zip or .npz file of another program)"
    )


def test_truncated_files_get_one_sentence(tmp_path: Path, model_path: Path) -> None:
    whole = model_path.read_bytes()
    for size in (5, 1000, len(whole) // 2, len(whole) - 1):
        (tmp_path / "cut").write_bytes(whole[:size])
        assert refusal(tmp_path / "cut") == "M: is damaged or cut short"


def changed_header(tmp_path: Path, model_path: Path, **changes: Any) -> str:
    parts = members(model_path)
    header = {**json.loads(parts["header.json"]), **changes}
    parts["header.json"] = json.dumps(header).encode()
    return archive_of(tmp_path / "changed.npz", parts)


def test_newer_and_wrong_headers(tmp_path: Path, model_path: Path) -> None:
    def told(**changes: Any) -> str:
        return refusal(changed_header(tmp_path, model_path, **changes))

    assert told(version=11, kbnn="9.0") == (
        "M: was written by a newer kbnn, 9.0 (format 11); this is 0.2.0, which reads format 10"
    )
    assert told(format="other") == "M: is not a kbnn model"
    assert told(version="1") == "M: is damaged (its version)"
    assert told(model=[]) == "M: is damaged (its header)"
    assert told(arrays={"x": {"shape": [1], "type": "<f8"}}) == (
        "M: is damaged (array 'x' is missing)"
    )
    assert told(model={}).startswith("M: the model is damaged")


@pytest.mark.parametrize("part", ["settings", "schema", "column", "config"])
def test_what_a_newer_one_knows_of_is_no_damage(
    tmp_path: Path, model_path: Path, part: str
) -> None:
    model = json.loads(members(model_path)["header.json"])["model"]
    parts = {
        "settings": model["settings"],
        "schema": model["schema"],
        "column": model["schema"]["columns"][0],
        "config": model["racers"][0]["networks"][0]["config"],
    }
    parts[part]["colour"] = 1
    assert refusal(changed_header(tmp_path, model_path, model=model)) == (
        "M: was written by a newer kbnn ('colour' is unknown to this one)"
    )


def test_nothing_larger_than_the_file_is_believed(tmp_path: Path, model_path: Path) -> None:
    parts = members(model_path)
    deflated = archive_of(tmp_path / "deflated.npz", parts, zipfile.ZIP_DEFLATED)
    assert refusal(deflated) == "M: is compressed, which a kbnn model never is"
    huge = np.lib.format.magic(1, 0) + b"\x76\x00"
    text = "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"
    parts["racer0/network0/mean.npy"] = huge + text.ljust(117).encode() + b"\n"
    path = archive_of(tmp_path / "huge.npz", parts)
    assert refusal(path) == "M: is damaged (array 'racer0/network0/mean' has another shape or type)"


def test_objects_are_never_unpickled(tmp_path: Path, model_path: Path) -> None:
    parts = members(model_path)
    file = io.BytesIO()
    np.save(file, np.array([{}], dtype=object), allow_pickle=True)
    parts["racer0/network0/mean.npy"] = file.getvalue()
    path = archive_of(tmp_path / "objects.npz", parts)
    assert refusal(path) == "M: is damaged (array 'racer0/network0/mean' has an unknown type)"


def mutated(whole: bytes, dice: random.Random) -> bytes:
    """Bytes changed, cut out, doubled or appended, most often near the structures of the zip."""
    data = bytearray(whole)
    for _ in range(dice.choice((1, 1, 2, 8))):
        if not data:
            break
        end = dice.choice((64, 9000, len(data)))
        at = dice.randrange(min(end, len(data)))
        if dice.random() < 0.4:
            at = len(data) - 1 - dice.randrange(min(3500, len(data)))
        match dice.randrange(4):
            case 0:
                data[at] = dice.randrange(256)
            case 1:
                data[at] ^= 1 << dice.randrange(8)
            case 2:
                del data[at : at + dice.choice((1, 4, 100))]
            case _:
                data[at:at] = data[at : at + dice.choice((1, 8, 200))]
    return bytes(data)


def survives(path: Path, content: bytes) -> bool:
    """Whether a file still loads; anything but a model or a ModelError is a failure."""
    path.write_bytes(content)
    try:
        modelfile.load(str(path))
    except ModelError:
        return False
    return True


def test_mutated_bytes_give_a_model_or_a_sentence(tmp_path: Path, model_path: Path) -> None:
    dice = random.Random(7)
    whole = model_path.read_bytes()
    loaded = sum(survives(tmp_path / "x", mutated(whole, dice)) for _ in range(400))
    assert loaded < 100


def test_mutated_headers_give_a_model_or_a_sentence(tmp_path: Path, model_path: Path) -> None:
    dice = random.Random(8)
    parts = members(model_path)
    for _ in range(150):
        changed = {**parts, "header.json": json.dumps(damaged(parts["header.json"], dice)).encode()}
        array = dice.choice([name for name in parts if name.endswith(".npy")])
        if dice.random() < 0.3:
            changed[array] = mutated(parts[array], dice)
        content = Path(archive_of(tmp_path / "y", changed)).read_bytes()
        survives(tmp_path / "x", content)


def damaged(header: bytes, dice: random.Random) -> Any:
    """A header with one value somewhere replaced or removed."""
    whole = json.loads(header)
    node: Any = whole
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = dice.choice(keys)
        if isinstance(node[key], dict | list) and node[key] and dice.random() < 0.85:
            node = node[key]
        elif dice.random() < 0.3:
            del node[key]
            return whole
        else:
            node[key] = dice.choice([None, -1, 0, 1e308, 2**70, "x", [], {}, [None], True, 3.5])
            return whole
