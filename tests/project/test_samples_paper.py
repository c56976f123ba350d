"""What the experiments share: the paper's numbers, tables, splits, and results that are kept."""

import sys
from pathlib import Path

import numpy as np
import pytest

from samples.paper import all as everything
from samples.paper import (
    benchmark,
    common,
    cubic,
    data,
    figures,
    learners,
    moons,
    options,
    published,
    report,
    runs,
    silences,
    timing,
    uci,
)
from samples.paper.published import Figure


def test_published_tables_are_complete() -> None:
    methods = {"SVI", "MCMC", "PBP", "KBNN1", "KBNN10"}
    for table in (published.RMSE, published.NLL, published.SECONDS):
        assert list(table) == list(published.SIZES)
        assert all(set(row) == methods for name, row in table.items() if name != "year")
        assert set(table["year"]) == methods - {"MCMC"}
    for layers, neurons in (
        (published.LAYERS_RMSE, published.NEURONS_RMSE),
        (published.LAYERS_NLL, published.NEURONS_NLL),
        (published.LAYERS_SECONDS, published.NEURONS_SECONDS),
    ):
        assert list(layers) == list(neurons) == list(data.SIX)
        for name in data.SIX:
            assert list(layers[name]) == ["1", "2", "3", "4"]
            assert list(neurons[name]) == ["10", "50", "100", "200"]
            assert layers[name]["1"] == neurons[name]["10"], "one layer of ten is in both tables"


def test_published_numbers_agree_where_the_paper_repeats_itself() -> None:
    for name in data.SIX:
        assert published.NEURONS_RMSE[name]["50"].mean == published.RMSE[name]["KBNN10"].mean
        assert published.NEURONS_NLL[name]["50"].mean == published.NLL[name]["KBNN10"].mean
        seconds = published.NEURONS_SECONDS[name]["50"].mean
        assert abs(seconds - published.SECONDS[name]["KBNN10"].mean) < 0.06
    assert published.MOON["1350"]["accuracy"] == Figure(99.93, 0.20)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (Figure(1.0, 0.1), Figure(2.0, 0.1), "better"),
        (Figure(2.0, 0.1), Figure(1.0, 0.1), "worse"),
        (Figure(1.0, 0.3), Figure(1.2, 0.1), "even"),
        (Figure(1.0), Figure(1.1), "better"),
    ],
)
def test_verdict(ours: Figure, theirs: Figure, expected: str) -> None:
    assert report.verdict(ours, theirs) == expected


def test_text_and_summary() -> None:
    assert report.text(report.summary([1.0, 3.0]), 2) == "2.00 ± 1.41"
    assert report.text(report.summary([1.0]), 1) == "1.0"
    assert report.text(None) == "-"


def test_table_is_shown_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = report.Table("name", "A title", ("set", "RMSE"), [["Boston", "2.7"]], "A note.")
    report.show(table, options.Options(out=tmp_path))
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("A title", "Boston", "2.7", "A note."))
    assert (tmp_path / "name.md").read_text() == (
        "**A title**\n\n| set | RMSE |\n|---|---:|\n| Boston | 2.7 |\n\nA note.\n"
    )


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(published.SIZES, "boston", (20, 2))
    rows = "\n".join(f"{i},{2 * i},{3 * i}" for i in range(20))
    (tmp_path / "boston.csv").write_text(f"a,b,y\n{rows}\n")
    return tmp_path


def test_split_is_ninety_ten_and_covers_all_rows(tiny: Path) -> None:
    first, again, other = (data.split(tiny, "boston", seed) for seed in (0, 0, 1))
    assert first.x.shape == (18, 2)
    assert first.y_test.shape == (2, 1)
    assert sorted(np.concatenate([first.x, first.x_test])[:, 0]) == list(range(20))
    np.testing.assert_array_equal(first.y, 3 * first.x[:, :1])
    np.testing.assert_array_equal(first.x, again.x)
    assert not np.array_equal(first.x, other.x)


def test_data_that_is_not_the_papers_is_refused(tiny: Path) -> None:
    with pytest.raises(SystemExit, match="need --data DIR"):
        data.load(None, "boston")
    with pytest.raises(SystemExit, match=r"no .*wine\.csv"):
        data.load(tiny, "wine")
    (tiny / "yacht.csv").write_text("a,y\n1,2\n")
    with pytest.raises(SystemExit, match=r"has shape \(1, 2\)"):
        data.load(tiny, "yacht")


def test_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert options.parse("", ["--out", str(out)]).seeds == 10
    assert options.parse("", ["--out", str(out), "--quick"]).seeds == 2
    (out / "results.jsonl").write_text("{}\n")
    options.parse("", ["--out", str(out), "--fresh"])
    assert not (out / "results.jsonl").exists()
    with pytest.raises(SystemExit):
        options.parse("", ["--data", str(tmp_path / "nowhere")])
    assert "there is no folder" in capsys.readouterr().err


def square(case: runs.Case, given: options.Options) -> runs.Result:
    """Work for the runner: leaves a mark each time it is done."""
    number = int(str(case["number"]))
    with (given.out / "marks").open("a") as file:
        file.write(f"{number} ")
    return {"square": [float(number**2)]}


def test_results_are_kept_and_a_broken_run_goes_on(tmp_path: Path) -> None:
    given = options.Options(out=tmp_path)
    cases: list[runs.Case] = [{"number": n} for n in (1, 2, 3)]
    found = runs.gather(square, cases[:2], given, "first", processes=0)
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('{"key": "cut sh')
    found = runs.gather(square, cases, given, "second", processes=0)
    assert [one["square"][0] for one in found] == [1.0, 4.0, 9.0]
    assert (tmp_path / "marks").read_text() == "1 2 3 "
    assert runs.gather(square, cases, given, "third", processes=0) == found
    assert (tmp_path / "marks").read_text() == "1 2 3 ", "the cut line did not swallow the next one"


def test_naval_is_printed_with_more_decimals() -> None:
    assert uci.digits("naval", "rmse") > uci.digits("boston", "rmse")


def test_results_depend_on_the_arithmetic_and_on_nothing_else_of_kbnn() -> None:
    names = {path.name for path in runs._arithmetic()}
    if "_kernel.pyx" not in names:
        pytest.skip("tests of a wheel, which has no sources")
    assert {
        "__init__.py",
        "kernel.py",
        "reference.py",
        "paper_smoother.py",
        "_kernel.pyx",
        "kernel.c",
    } <= names
    assert {"model.py", "candidates.py", "learner.py", "settings.py"} <= names
    assert not {"file.py", "dataset.py", "writers.py", "_kernel.c"} & names


@pytest.mark.parametrize("mode", common.MODES)
def test_a_run_learns_and_is_measured_after_each_pass(mode: str, tiny: Path) -> None:
    case: runs.Case = {"set": "boston", "mode": mode, "hidden": [3], "seed": 0, "epochs": 2}
    result = benchmark.curves(case, options.Options(data=tiny))
    assert set(result) == set(benchmark.MEASURES)
    assert all(len(values) == 2 and np.all(np.isfinite(values)) for values in result.values())


def test_paper_mode_learns_nothing_but_the_weights() -> None:
    x, y = data.stand_in(50, 3)
    config = common.printed((4,), x, y, seed=0).state.config
    assert (config.covariance, config.noise, config.hidden_noise) == ("paper", 0.01, 0.01)
    assert not any((config.learns_noise, config.has_head, config.robust, config.drift))


def test_the_tool_answers_about_classes_from_its_first_rows_on() -> None:
    x, y = moons.stream("moons", 0)
    learner = learners.begin("default", moons.HIDDEN, x, y, seed=0, classes=True)
    for first, last in ((0, 5), (5, 500)):
        learner.learn(x[first:last], y[first:last])
        answer = learner.ask(x[500:])
        p, var = common.after_sigmoid(answer)
        assert p.shape == var.shape == answer.function_var.shape == (1000, 1)
    assert common.accuracy(p, y[500:]) > 95.0


def test_a_reading_in_the_targets_own_units_is_another_reading(tiny: Path) -> None:
    given = options.Options(data=tiny)
    case: runs.Case = {"set": "boston", "split": 0, "weights": 0}
    plain, own = (
        silences.reading({**case, "setting": setting}, given)
        for setting in ("paper mode", "own units")
    )
    assert len(plain["rmse"]) == len(own["nll"]) == len(uci.EPOCHS)
    assert plain["rmse"] != own["rmse"]


def test_a_collapsed_density_does_not_agree_with_the_paper() -> None:
    assert silences.agrees(Figure(3.1, 0.1), Figure(3.0, 0.1))
    assert not silences.agrees(Figure(1e6, 1e7), Figure(3.0, 0.1))


def test_the_papers_times_grow() -> None:
    for what in ("rows", "units", "layers"):
        x, y = timing.printed(what)
        assert len(x) == len(y) >= 4
        assert list(x) == sorted(x)
        assert y[-1] > y[0]


def test_without_matplotlib_the_tables_remain_and_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert figures.plots() is None
    cubic.draw([], options.Options(out=tmp_path))
    assert capsys.readouterr().out.count("pip install 'kbnn[report]'") == 2
    assert not list(tmp_path.iterdir())


def test_without_data_the_experiments_left_out_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(everything, "FREE", ())
    everything.main(options.Options(out=tmp_path))
    shown = capsys.readouterr().out
    assert all(name in shown for name in everything.UCI)
    assert shown.count("left out: no --data DIR") == len(everything.UCI)
