"""Labels that come late: learned with the inputs of then, in the order of the labels."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kbnn
from kbnn.errors import ModelError
from kbnn.model import file as modelfile
from kbnn.model.model import OnlineModel
from kbnn.model.serialize import from_state, to_state
from kbnn.workflows.options import build_train_options
from kbnn.workflows.training import Training
from tests.commands import kbnn as command
from tests.commands import program


def table(rows: int = 400, seed: int = 0, classes: bool = False) -> list[tuple[str, str, str]]:
    """(x, town, y) of rows that can be learned."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=rows)
    town = rng.integers(0, 4, rows)
    y = np.sin(x) + 0.5 * town + 0.1 * rng.normal(size=rows)
    labels = ["low" if v < 0.8 else "high" for v in y] if classes else [f"{v:.4f}" for v in y]
    return [(f"{a:.4f}", f"town {b}", c) for a, b, c in zip(x, town, labels, strict=True)]


def in_order(path: Path, rows: list[tuple[str, str, str]]) -> Path:
    lines = [f"{at},{x},{town},{y}" for at, (x, town, y) in enumerate(rows)]
    path.write_text("id,x,town,y\n" + "\n".join(lines) + "\n")
    return path


def late(path: Path, rows: list[tuple[str, str, str]], delay: int) -> Path:
    """Each label `delay` rows after its inputs, in a row of its own."""
    lines = ["id,x,town,y"]
    for at in range(len(rows) + delay):
        if at < len(rows):
            lines.append(f"{at},{rows[at][0]},{rows[at][1]},")
        if at >= delay:
            lines.append(f"{at - delay},,,{rows[at - delay][2]}")
    path.write_text("\n".join(lines) + "\n")
    return path


def trained(path: Path, block: int = 4096, **words: Any) -> OnlineModel:
    options = build_train_options(str(path), **words)
    training = Training(replace(options, read=replace(options.read, block_rows=block)))
    training.run()
    return training.overall_model


def same_network(one: OnlineModel, other: OnlineModel) -> bool:
    mine, theirs = (m.learner_state.members[0].state() for m in (one, other))
    return bool(
        np.array_equal(mine.mean, theirs.mean)
        and np.array_equal(mine.cov, theirs.cov)
        and np.array_equal(mine.noise, theirs.noise)
    )


@pytest.mark.parametrize("classes", [False, True])
@pytest.mark.parametrize(
    "words",
    [
        {"layers": 6},
        pytest.param({"layers": "auto"}, marks=pytest.mark.slow),
        pytest.param({"ensemble": 2, "layers": 4}, marks=pytest.mark.slow),
    ],
)
def test_late_labels_learn_the_weights_of_labels_in_order(
    words: dict[str, Any], classes: bool, tmp_path: Path
) -> None:
    rows = table(1300, classes=classes)
    now = trained(in_order(tmp_path / "a.csv", rows), ignore=["id"], **words)
    then = trained(late(tmp_path / "b.csv", rows, 1000), id="id", target="y", **words)
    assert same_network(now, then)
    assert then.pending_rows.counts == {"found": 1300, "given_up": 0, "replaced": 0, "strangers": 0}
    assert not then.pending_rows.rows
    assert then.skipped == 1300


def test_the_record_is_of_the_forecasts_of_then(tmp_path: Path) -> None:
    rows = table(600)
    path = late(tmp_path / "b.csv", rows, 200)
    out = tmp_path / "p.csv"
    ran = command("train", path, "-m", tmp_path / "m.npz", "--id", "id", "--predictions", out, "-q")
    assert ran.code == 0, ran.err
    first: dict[str, str] = {}
    errors, waited = [], 0
    for row in csv.DictReader(out.read_text().splitlines()):
        if not row["y"]:
            first[row["id"]] = row["mean"]
            continue
        if first[row["id"]]:
            assert row["mean"] == first[row["id"]]
            waited += 1
        errors.append(float(row["y"]) - float(row["mean"] or "nan"))
    assert waited > 300
    model = modelfile.load(str(tmp_path / "m.npz"))
    scored = model.card.scores[0].metric_values()
    judged = np.array(errors[-scored["rows"] :])
    assert np.sqrt(np.mean(judged**2)) == pytest.approx(scored["rmse"], rel=1e-9)


@pytest.mark.parametrize("block", [1, 7, 64])
def test_any_cut_gives_the_same_bits(block: int, tmp_path: Path) -> None:
    path = late(tmp_path / "b.csv", table(300), 60)
    whole, cut = (trained(path, size, id="id", target="y", layers=5) for size in (4096, block))
    one, other = to_state(whole), to_state(cut)
    assert one[0] == other[0]
    for name, array in one[1].items():
        np.testing.assert_array_equal(array, other[1][name], err_msg=name)


@pytest.mark.parametrize("cut", [150, 401])
def test_a_run_that_goes_on_gives_the_same_bits(cut: int, tmp_path: Path) -> None:
    path, model = late(tmp_path / "b.csv", table(300), 100), tmp_path / "m.npz"
    whole = trained(path, id="id", target="y", layers=5, task="regression")
    text = path.read_text().splitlines(keepends=True)
    for at, part in enumerate((text[1 : cut + 1], text[cut + 1 :])):
        (tmp_path / f"{at}.csv").write_text(text[0] + "".join(part))
        ran = command("train", tmp_path / f"{at}.csv", "-m", model, "-q", "--id", "id",
                      "--target", "y", "--layers", "5")  # fmt: skip
        assert ran.code == 0, ran.err
    gone_on = modelfile.load(str(model))
    assert same_network(whole, gone_on)
    assert gone_on.pending_rows.counts == whole.pending_rows.counts
    assert gone_on.card.scores[0].metric_values() == whole.card.scores[0].metric_values()


def test_rows_in_one_file_and_labels_in_another(tmp_path: Path) -> None:
    rows = table(300)
    inputs = [f"{at},{x},{town}," for at, (x, town, _) in enumerate(rows)]
    (tmp_path / "rows.csv").write_text("id,x,town,y\n" + "\n".join(inputs) + "\n")
    order = np.random.default_rng(1).permutation(300)
    labels = [f"{rows[at][2]},{at}" for at in order]
    (tmp_path / "labels.csv").write_text("y,id\n" + "\n".join(labels) + "\n")
    model = tmp_path / "m.npz"
    ran = command("train", tmp_path / "rows.csv", tmp_path / "labels.csv", "-m", model, "--id",
                  "id", "--target", "y", "--layers", "5")  # fmt: skip
    assert ran.code == 0, ran.err
    mixed = trained(in_order(tmp_path / "a.csv", [rows[at] for at in order]), layers=5,
                    ignore=["id"])  # fmt: skip
    found = modelfile.load(str(model))
    names = [column.categories for column in found.schema.columns if column.name == "town"]
    assert sorted(names[0]) == [f"town {k}" for k in range(4)]
    assert found.rows == mixed.rows == 300
    (tmp_path / "more.csv").write_text("id,x,town\n900,0.5,town 1\n901,0.1,town 2\n")
    assert command("train", tmp_path / "more.csv", "-m", model, "-q").code == 0
    assert list(modelfile.load(str(model)).pending_rows.rows) == ["900", "901"]
    shown = command("inspect", model).out
    assert "2 rows for a target, 300 matched with a late target" in shown
    (tmp_path / "test.csv").write_text("x,town,y\n0.5,town 1,1.0\n0.1,town 2,0.9\n")
    assert command("evaluate", model, tmp_path / "test.csv", "-q").code == 0
    assert command("predict", model, tmp_path / "test.csv", "-q").code == 0
    (tmp_path / "last.csv").write_text("id,y\n901,1.0\n")
    assert command("train", tmp_path / "last.csv", "-m", model, "-q").code == 0
    assert list(modelfile.load(str(model)).pending_rows.rows) == ["900"]


def test_a_late_label_counts_as_much_as_its_row_says(tmp_path: Path) -> None:
    """The weight stands where the inputs do."""
    rows = table(120)
    weights = [1.0 + at % 5 for at in range(len(rows))]
    order, apart = tmp_path / "order.csv", tmp_path / "apart.csv"
    both = [(at, *row, w) for at, (row, w) in enumerate(zip(rows, weights, strict=True))]
    lines = [f"{at},{x},{town},{y},{w}" for at, x, town, y, w in both]
    order.write_text("id,x,town,y,w\n" + "\n".join(lines) + "\n")
    lines = [f"{at},{x},{town},,{w}\n{at},,,{y}," for at, x, town, y, w in both]
    apart.write_text("id,x,town,y,w\n" + "\n".join(lines) + "\n")
    words: dict[str, Any] = {"layers": 4, "id": "id", "target": "y", "rehearse": "off"}
    words["weight"] = "w"
    whole = trained(order, **words)
    assert same_network(trained(apart, **words), whole)
    assert not same_network(trained(in_order(tmp_path / "plain.csv", rows), layers=4, id="id",
                                    target="y", rehearse="off"), whole)  # fmt: skip


def test_weight_and_input_error_of_a_row_are_kept_for_a_label_from_another_file(
    tmp_path: Path,
) -> None:
    """The file of labels has neither column."""
    rng = np.random.default_rng(0)
    x, sd, w = rng.normal(size=300), rng.uniform(0.1, 1.0, 300), rng.uniform(0.2, 3.0, 300)
    y = x + 0.1 * rng.normal(size=300)
    texts = [[f"{v:.4f}" for v in row] for row in np.column_stack((x, sd, w, y)).tolist()]
    tables = {
        "whole": ["id,x,x_sd,w,y", *(",".join((str(k), *row)) for k, row in enumerate(texts))],
        "rows": ["id,x,x_sd,w,y", *(f"{k},{a},{b},{c}," for k, (a, b, c, _) in enumerate(texts))],
        "labels": ["id,y", *(f"{k},{row[-1]}" for k, row in enumerate(texts))],
    }
    for name, lines in tables.items():
        (tmp_path / name).write_text("\n".join([*lines, ""]))
    words: dict[str, Any] = {"id": "id", "weight": "w", "layers": 6, "target": "y"}
    models = []
    for sources in (["whole"], ["rows", "labels"]):
        made = tmp_path / f"{sources[0]}.npz"
        kbnn.train([tmp_path / one for one in sources], model=made, replay="off", **words)
        models.append(modelfile.load(str(made)))
    assert same_network(*models)


def test_what_a_late_label_was_is_told_beside_the_forecast_of_then() -> None:
    """Whether it was an outlier shows when it comes; mean and sd are those of then."""
    rng = np.random.default_rng(2)
    model = kbnn.Model("y", layers=4, id="id", rehearse="off")
    for at, x in enumerate(rng.normal(size=150).tolist()):
        model.learn_one({"id": str(at), "x": x}, x)
    inner = model._model
    assert inner is not None
    reader = model._row_reader()
    then = inner.learn(reader.encode_row({"id": "new", "x": 0.5}, None, 1.0, 151))
    for at, x in enumerate(rng.normal(size=50).tolist()):
        model.learn_one({"id": f"more {at}", "x": x}, x)
    now = inner.learn(reader.encode_row({"id": "new"}, 30.0, 1.0, 202))
    assert now.mean[0, 0] == then.mean[0, 0]
    assert now.sd[0, 0] == then.sd[0, 0]
    assert np.isnan(then.outlier[0]) or then.outlier[0] < 0.5
    assert now.outlier[0] > 0.9


def test_ids_that_repeat_never_come_come_twice_or_too_early(tmp_path: Path) -> None:
    rows = table(100)
    lines = [f"{at},{x},{town},{y}" for at, (x, town, y) in enumerate(rows)]
    lines += [
        "a,1,town 1,",  # waits
        "a,2,town 2,",  # takes its place
        "a,,,1.5",  # finds it
        "a,,,1.6",  # twice: a stranger
        "b,,,1.0",  # before its row: a stranger
        "b,3,town 1,",  # waits for ever
        "c,1,town 2,1.2",  # an ordinary row
        ",1,town 2,",  # without an id nothing waits
        ",1,town 2,1.3",  # and an ordinary row is learned
    ]
    path = tmp_path / "s.csv"
    path.write_text("id,x,town,y\n" + "\n".join(lines) + "\n")
    model = trained(path, id="id", target="y", layers=4)
    assert model.pending_rows.counts == {"found": 1, "given_up": 0, "replaced": 1, "strangers": 2}
    assert list(model.pending_rows.rows) == ["b"]
    assert model.rows == 103
    kept = model.learner_state.buffer.rows().x
    assert [row[0] for row in kept[-3:]] == [2.0, 1.0, 1.0]


def test_the_oldest_is_given_up(tmp_path: Path) -> None:
    path = late(tmp_path / "b.csv", table(200), 60)
    model = trained(path, id="id", target="y", layers=4, wait=40)
    assert model.pending_rows.counts["given_up"] == 160
    assert model.pending_rows.counts["strangers"] == 160
    assert len(model.pending_rows.rows) == 0
    assert model.rows == 40


def test_a_live_pipe_answers_and_learns(tmp_path: Path) -> None:
    path = late(tmp_path / "b.csv", table(200), 20)
    ran = program("train", "-", "-m", tmp_path / "m.npz", "--id", "id", "--target", "y",
                  "--predictions", "-", "-q", stdin=path.read_bytes())  # fmt: skip
    assert ran.code == 0, ran.err
    rows = list(csv.DictReader(ran.out.splitlines()))
    assert len(rows) == 400
    assert [*rows[0]][:3] == ["row", "id", "y"]


def test_single_rows_wait_too() -> None:
    model = kbnn.Model("y", id="id", layers=4)
    for at, (x, town, y) in enumerate(table(80)):
        model.learn_one({"id": at, "x": float(x), "town": town}, None if at else float(y))
        if at:
            model.learn_one({"id": at}, float(y))
    assert model._require_single_model().pending_rows.counts["found"] == 79
    assert model.rows == 80


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--id", "id", "--lags", "1"], "--lags and --id contradict each other"),
        (["--id", "id", "--shuffle"], "--id and --shuffle contradict each other"),
        (["--id", "id", "--epochs", "2"], "--id and --epochs contradict each other"),
        (["--id", "id", "--wait", "0"], "--max-pending is between 1 and 1,000,000, not 0"),
        (["--id", "y"], "column 'y' cannot be both the target and the id"),
        (["--id", "nothing"], "no column 'nothing'"),
    ],
)
def test_what_cannot_be(words: list[str], sentence: str, tmp_path: Path) -> None:
    ran = command("train", in_order(tmp_path / "a.csv", table(50)), "-m", tmp_path / "m.npz",
                  *words)  # fmt: skip
    assert ran.code in (1, 2)
    assert sentence in ran.err


def test_damaged_rows_that_wait_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.csv"
    text = late(path, table(100), 30).read_text().splitlines()
    path.write_text("\n".join(text[:-10]) + "\n")
    header, arrays = to_state(trained(path, id="id", target="y", layers=3))
    assert len(header["waiting"]["ids"]) == 10
    from_state(header, arrays)
    for name, array in (
        ("waiting/x", arrays["waiting/x"][1:]),
        ("waiting/weight", np.full(10, -1.0)),
        ("waiting/mean", np.zeros((10, 3))),
    ):
        with pytest.raises(ModelError):
            from_state(header, {**arrays, name: array})


def test_a_run_cut_short_resumes_with_the_rows_that_wait(tmp_path: Path) -> None:
    path = late(tmp_path / "b.csv", table(300), 60)
    text = path.read_text().splitlines()
    text.insert(250, "7,oops,town 1,")
    path.write_text("\n".join(text) + "\n")
    cut, whole = tmp_path / "cut.npz", tmp_path / "whole.npz"
    words = ("-q", "--id", "id", "--target", "y", "--layers", "5")
    assert command("train", path, "-m", cut, *words).code == 1
    assert len(modelfile.load(str(cut)).pending_rows.rows) > 50
    skip = ("--on-error", "skip")
    assert command("train", path, "-m", cut, *words, "--resume", *skip).code == 0
    assert command("train", path, "-m", whole, *words, *skip).code == 0
    one, other = (to_state(modelfile.load(str(name))) for name in (cut, whole))
    assert one[0] == other[0]
    for name, array in one[1].items():
        np.testing.assert_array_equal(array, other[1][name], err_msg=name)
