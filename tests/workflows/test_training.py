"""The training loop: exact at any cut, whatever ends it."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from kbnn.errors import DataError, ModelError, UsageError
from kbnn.metrics.scorecard import CurvePoint
from kbnn.model.file import load
from kbnn.workflows.checkpoint import Interrupted
from kbnn.workflows.options import SettingOverrides
from kbnn.workflows.run_results import summarize_training
from kbnn.workflows.training import Listener, Training, TrainOptions
from tests.training_data import (
    rows_of_classes,
    rows_of_numbers,
    state_of,
    train,
    write_csv,
)

NUMBERS = "a,b,kind,y"
CLASSES = "a,b,label"


class StopAfter(Listener):
    """Interrupts once so many rows have been taken in."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.notices: list[str] = []

    def on_notice(self, text: str) -> None:
        self.notices.append(text)

    def on_progress(self, training: Training, points: list[list[CurvePoint]]) -> None:
        if training.rows >= self.rows:
            raise Interrupted(signal.SIGINT)


@pytest.mark.parametrize("cut", [2, 10, 31, 32, 33, 70, 149])
@pytest.mark.parametrize("header", [NUMBERS, CLASSES])
def test_two_runs_equal_one(tmp_path: Path, cut: int, header: str) -> None:
    lines = rows_of_numbers(150) if header == NUMBERS else rows_of_classes(150)
    read = {"task": "regression" if header == NUMBERS else "classification"}
    whole = write_csv(tmp_path / "whole.csv", lines, header)
    first = write_csv(tmp_path / "first.csv", lines[:cut], header)
    second = write_csv(tmp_path / "second.csv", lines[cut:], header)
    train([first], tmp_path / "two.npz", read=read)
    train([second], tmp_path / "two.npz", read=read)
    train([first, second], tmp_path / "both.npz", read=read)
    train([whole], tmp_path / "one.npz", read=read)
    assert state_of(tmp_path / "two.npz") == state_of(tmp_path / "both.npz")
    both, one = state_of(tmp_path / "both.npz"), state_of(tmp_path / "one.npz")
    for _, arrays in (both, one):  # rows are numbered within their file
        del arrays["record/sample.row"], arrays["record/worst.row"]
    assert both == one


@pytest.mark.parametrize("block_rows", [1, 7, 33])
@pytest.mark.parametrize("shuffle", [{}, {"shuffle": True, "shuffle_rows": 20}])
def test_block_size_and_saving_change_nothing(
    tmp_path: Path, block_rows: int, shuffle: dict[str, Any]
) -> None:
    data = write_csv(tmp_path / "a.csv", rows_of_numbers(70))
    read = {"epochs": 2, **shuffle}
    train([data], tmp_path / "a.npz", read=read, predictions=str(tmp_path / "a.out.csv"))
    train(
        [data],
        tmp_path / "b.npz",
        read={**read, "block_rows": block_rows},
        predictions=str(tmp_path / "b.out.csv"),
        checkpoint_every=1e-9,
    )
    assert state_of(tmp_path / "b.npz") == state_of(tmp_path / "a.npz")
    assert (tmp_path / "b.out.csv").read_bytes() == (tmp_path / "a.out.csv").read_bytes()


@pytest.mark.parametrize("stop", [5, 32, 77, 150, 200, 333])
@pytest.mark.parametrize("shuffle", [False, True])
def test_resume_equals_an_uninterrupted_run(tmp_path: Path, stop: int, shuffle: bool) -> None:
    data = write_csv(tmp_path / "a.csv", rows_of_numbers(150))
    read = {"epochs": 3, "block_rows": 9, "shuffle": shuffle}
    whole, cut = tmp_path / "whole.npz", tmp_path / "cut.npz"
    out = tmp_path / "cut.out.csv"
    train([data], whole, read=read, predictions=str(tmp_path / "whole.out.csv"))
    with pytest.raises(Interrupted):
        train([data], cut, StopAfter(stop), read=read, predictions=str(out))
    with out.open("a") as file:
        file.write("a row written after the last checkpoint, and half of")
    train([data], cut, read=read, predictions=str(out), resume=True)
    assert state_of(cut) == state_of(whole)
    assert load(str(cut)).position["complete"] is True
    assert out.read_bytes() == (tmp_path / "whole.out.csv").read_bytes()


def test_resume_may_skip_the_row_that_stopped_the_run(tmp_path: Path) -> None:
    rows = rows_of_numbers(60)
    data = write_csv(tmp_path / "a.csv", rows)
    lines = Path(data).read_text().splitlines(keepends=True)
    Path(data).write_text("".join([*lines[:41], "broken\n", *lines[41:]]))
    whole, cut = tmp_path / "whole.npz", tmp_path / "cut.npz"
    train([data], whole, read={"on_error": "skip"})
    assert "1 field" in refusal([data], cut)
    train([data], cut, read={"on_error": "skip"}, resume=True)
    assert state_of(cut) == state_of(whole)
    assert refusal([data], cut, resume=True) == (
        "--resume: the run began with --on-error skip, not --on-error stop"
    )


def test_resume_says_what_does_not_fit(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "a.csv", rows_of_numbers(60))
    model = tmp_path / "m.npz"
    told = StopAfter(10**9)
    train([data], model, told, resume=True)
    assert "nothing to resume: the run starts at the first row" in told.notices
    train([data], model, told, resume=True)
    assert told.notices[-1] == "nothing left to learn: the run was complete"
    with pytest.raises(Interrupted):
        train([data], model, StopAfter(20), read={"block_rows": 4})
    for options, message in (
        ({"read": {"limit": 9}}, "--resume: the run began with no --limit, not --limit 9"),
        ({"read": {"shuffle": True}}, "--resume: the run began with no --shuffle, not --shuffle"),
    ):
        assert refusal([data], model, resume=True, **options) == message
    other = write_csv(tmp_path / "b.csv", rows_of_numbers(60))
    assert refusal([other], model, resume=True) == (
        f"--resume: the run began with {data}, not {other}"
    )


def test_the_same_command_goes_on_where_it_was_cut_short(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "a.csv", rows_of_numbers(60))
    whole, cut, told = tmp_path / "whole.npz", tmp_path / "cut.npz", StopAfter(10**9)
    train([data], whole)
    with pytest.raises(Interrupted):
        train([data], cut, StopAfter(20), read={"block_rows": 4})
    before = cut.read_bytes()
    train([data], cut, told)
    assert state_of(cut) == state_of(whole)
    assert (
        f"the last run on {data} was interrupted: continuing at the row where it ended "
        "(--relearn learns all rows again)" in told.notices
    )
    train([data], cut, told)
    assert load(str(cut)).rows == 120
    assert f"{data}: all rows were learned in an earlier run" in told.notices[-1]
    cut.write_bytes(before)
    learned = load(str(cut)).rows
    train([data], cut, again=True)
    assert load(str(cut)).rows == learned + 60
    cut.write_bytes(before)
    train([data], cut, told, read={"limit": 50})
    assert (
        "was interrupted and had other options: this run starts at the first row"
        in told.notices[-1]
    )
    cut.write_bytes(before)
    other = write_csv(tmp_path / "b.csv", rows_of_numbers(60))
    train([other], cut)
    assert load(str(cut)).rows == learned + 60


def test_more_epochs_after_a_complete_run(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "a.csv", rows_of_numbers(60))
    train([data], tmp_path / "a.npz", read={"epochs": 3})
    train([data], tmp_path / "b.npz", read={"epochs": 1})
    train([data], tmp_path / "b.npz", read={"epochs": 3}, resume=True)
    assert state_of(tmp_path / "b.npz") == state_of(tmp_path / "a.npz")


def refusal(sources: list[str], model: Path, **options: Any) -> str:
    with pytest.raises((UsageError, DataError, ModelError)) as caught:
        train(sources, model, **options)
    return str(caught.value)


def test_resumed_predictions_must_still_be_there(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "a.csv", rows_of_numbers(60))
    for name, message in (
        ("p.csv", "{}: is shorter than when the model was saved, so it cannot be continued"),
        ("p.parquet", "{}: only text can be resumed (use .csv or .jsonl)"),
    ):
        out, model = tmp_path / name, tmp_path / f"{name}.npz"
        with pytest.raises(Interrupted):
            train([data], model, StopAfter(40), read={"block_rows": 8}, predictions=str(out))
        out.write_bytes(b"")
        told = refusal([data], model, resume=True, predictions=str(out))
        assert told == message.format(out)


def test_predictions_that_begin_on_the_way_say_where(tmp_path: Path) -> None:
    data, model = write_csv(tmp_path / "a.csv", rows_of_numbers(60)), tmp_path / "m.npz"
    with pytest.raises(Interrupted):
        train([data], model, StopAfter(40), read={"block_rows": 8})
    done, told, out = load(str(model)).position["rows"], StopAfter(10**9), tmp_path / "p.csv"
    train([data], model, told, resume=True, predictions=str(out))
    assert f"the predictions begin at row {done + 1}" in told.notices
    numbers = [int(line.split(",")[0]) for line in out.read_text().splitlines()[1:]]
    assert numbers == list(range(done + 1, 61))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"choices": SettingOverrides(hidden=(7, 3))},
            "--layers 7,3 contradicts M, which has 6 "
            "(leave out --layers, or start over with --fresh)",
        ),
        (
            {"choices": SettingOverrides(noise=2.5)},
            "--noise 2.5 contradicts M, which has auto "
            "(leave out --noise, or start over with --fresh)",
        ),
        (
            {"choices": SettingOverrides(robust=False)},
            "--robust off contradicts M, which has auto "
            "(leave out --robust, or start over with --fresh)",
        ),
        (
            {"choices": SettingOverrides(seed=4)},
            "--seed 4 contradicts M, which has 0 (leave out --seed, or start over with --fresh)",
        ),
        (
            {"read": {"target": ("a",)}},
            "--target a contradicts M, which has y "
            "(leave out --target, or start over with --fresh)",
        ),
        (
            {"read": {"features": ("a",)}},
            "--features a contradicts M, which has a, b, kind "
            "(leave out --features, or start over with --fresh)",
        ),
        (
            {"read": {"task": "classification"}},
            "--task classification contradicts M, which has regression "
            "(leave out --task, or start over with --fresh)",
        ),
        (
            {"read": {"weight": "b"}},
            "--weight b contradicts M, which has none "
            "(leave out --weight, or start over with --fresh)",
        ),
        (
            {"read": {"na": ("?",)}},
            "--na ? contradicts M, which has none (leave out --na, or start over with --fresh)",
        ),
        (
            {"read": {"ignore": ("b",)}},
            "--ignore b: M learns from that column (--fresh starts a new model)",
        ),
    ],
)
def test_contradictions_name_both_values(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    data = write_csv(tmp_path / "a.csv", rows_of_numbers(40))
    model = tmp_path / "m.npz"
    train([data], model)
    before = model.read_bytes()
    assert refusal([data], model, **options).replace(str(model), "M") == message
    assert model.read_bytes() == before


def test_a_fresh_start_takes_any_option(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "a.csv", rows_of_numbers(40))
    model = tmp_path / "m.npz"
    train([data], model)
    train([data], model, fresh=True, choices=SettingOverrides(hidden=()), read={"target": ("a",)})
    assert load(str(model)).schema.targets == ["a"]
    assert load(str(model)).rows == 40


def test_agreeing_options_are_no_contradiction(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "a.csv", rows_of_numbers(40))
    for _ in range(2):
        read = {"target": ("y",), "features": ("kind", "b", "a"), "task": "regression"}
        training = train([data], tmp_path / "m.npz", read=read)
    assert training.continued
    assert (training.model.rows, training.tally_before.rows) == (80, 40)


def test_a_bad_row_ends_the_run_but_not_what_was_learned(tmp_path: Path) -> None:
    lines = rows_of_numbers(100)
    spoilt = [*lines[:80], "oops,1,u,2", *lines[80:]]
    data = write_csv(tmp_path / "a.csv", spoilt)
    model = tmp_path / "m.npz"
    told = refusal([data], model)
    assert told == (
        f"{data}:82: column 'a': cannot read 'oops' as a number "
        "(use --na 'oops' or --on-error skip)"
    )
    assert load(str(model)).rows == 80
    write_csv(tmp_path / "a.csv", lines)
    train([data], model, resume=True)
    train([data], tmp_path / "whole.npz")
    assert state_of(model) == state_of(tmp_path / "whole.npz")


def test_counts_and_bad_rows(tmp_path: Path) -> None:
    lines = rows_of_numbers(60)
    lines[40] = "1,2,u,"
    lines[50] = "1,x,u,3"
    data = write_csv(tmp_path / "a.csv", lines)
    bad = tmp_path / "bad.csv"
    read = {"on_error": "skip"}
    found = summarize_training(train([data], tmp_path / "m.npz", read=read, bad_rows=str(bad)))
    assert [found[name] for name in ("rows", "skipped", "rejected", "bad_rows")] == [58, 1, 0, 1]
    assert bad.read_text().splitlines()[1] == f"{data},52,b,x,cannot read 'x' as a number"
    assert set(found["seconds"]) == {"read", "encode", "learn", "save", "start", "total"}
    assert {"rmse", "nll", "coverage_90", "baseline_rmse"} <= set(found["prequential"])
    json.dumps(found, allow_nan=False)


def test_predictions_have_one_row_for_each_row(tmp_path: Path) -> None:
    lines = rows_of_numbers(60)
    lines[40] = "1,2,u,"
    data = write_csv(tmp_path / "a.csv", lines)
    for name in ("p.csv", "p.parquet"):
        path = str(tmp_path / name)
        train([data], tmp_path / f"{name}.npz", predictions=path, read={"epochs": 2})
        table = pa_csv.read_csv(path) if name == "p.csv" else pq.read_table(path)
        assert table.column_names == ["row", "y", "mean", "sd", "lower", "upper", "outlier"]
        assert table["row"].to_pylist() == list(range(1, 61))
        assert table["y"].to_pylist()[40] is None
        assert table["mean"].null_count == 1  # nothing is known before the first row
        assert table["mean"].to_pylist()[0] is None


def test_class_predictions_in_training(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "a.csv", rows_of_classes(120), "a,b,label")
    out = tmp_path / "p.csv"
    train([data], tmp_path / "m.npz", predictions=str(out))
    table = pa_csv.read_csv(out)
    assert table.column_names == ["row", "label", "kbnn_label", "probability"]
    assert set(table["label"].to_pylist()) == {"red", "green", "blue"}


def test_nothing_is_written_over_what_is_read(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "a.csv", rows_of_numbers(40))
    model = tmp_path / "m.npz"
    assert refusal([data], tmp_path / "a.csv") == (
        f"--model {data}: would write over the source {data}"
    )
    assert refusal([data], model, predictions=data) == (
        f"--predictions {data}: would write over the source {data}"
    )
    assert refusal([data], model, predictions=str(model)) == (
        f"--predictions {model}: would write over --model {model}"
    )


def test_no_target_at_all(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "a.csv", ["1,2,u,", "2,3,v,"])
    told = refusal([data], tmp_path / "m.npz")
    assert told.startswith(("no row could be learned", "target 'y'"))
    assert not (tmp_path / "m.npz").exists()


def test_a_look_writes_nothing(tmp_path: Path) -> None:
    data = write_csv(tmp_path / "a.csv", rows_of_numbers(40))
    training = Training(TrainOptions((data,), str(tmp_path / "m.npz")))
    training.find_schema()
    assert training.model.schema.targets == ["y"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
