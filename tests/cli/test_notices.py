"""Nothing is dropped, misread or refused without a word that names the column and the remedy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kbnn.data.arrow_format import _read_parquet_width
from kbnn.data.csv_records import MAX_COLUMNS
from kbnn.data.dataset import open_stream
from kbnn.data.read_options import ReadOptions
from kbnn.model.file import load
from kbnn_cli.app import COMMANDS
from kbnn_cli.commands.help import list_option_names
from tests.commands import SAMPLES, kbnn, program
from tests.streams import arrow_bytes, assert_same, look


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def jsonl(rows: int, **late: int) -> str:
    """Rows of a and y, and keys that begin at a row; some of them inside another value."""
    lines = []
    for at in range(1, rows + 1):
        more = {key: at for key, first in late.items() if at >= first}
        lines.append(json.dumps({"a": at, "nest": {"in": {f"k{at}": 1}}, "y": 2 * at, **more}))
    return "\n".join(lines) + "\n"


def test_a_late_key_is_told_at_its_row() -> None:
    Path("t").write_text(jsonl(99, extra=41, more=60))
    seen = look(["t"])
    fate = "it is learned from now on (--features names those to learn)"
    assert f"t: the column 'extra' comes first in row 41: {fate}" in seen.notices
    assert f"t: the column 'more' comes first in row 60: {fate}" in seen.notices
    for read_size in (1, 50, 1000):
        assert_same(look(["t"], read_size=read_size), seen)
    chosen = look(["t"], features=("a",), target=("y",))
    remedy = "and is ignored (to learn from it, use --features)"
    assert f"t: the key 'extra' comes first in row 41 {remedy}" in chosen.notices
    for read_size in (1, 50, 1000):
        assert_same(look(["t"], features=("a",), target=("y",), read_size=read_size), chosen)


def test_so_many_late_keys_are_not_all_told() -> None:
    Path("t").write_text(jsonl(99, **{f"e{at}": 40 + at for at in range(1, 12)}))
    chosen = look(["t"], features=("a",), target=("y",))
    told = [text for text in chosen.notices if "ignored" in text and "key" in text]
    assert len(told) == 6
    assert all(
        f"the key 'e{at}' comes first in row {40 + at} " in told[at - 1] for at in range(1, 6)
    )
    assert told[-1] == "t: further new keys from row 46 on are ignored"


def test_a_late_feature_is_missing_until_it_comes() -> None:
    Path("t").write_text(jsonl(99, extra=41))
    seen = look(["t"], features=("a", "extra"), target=("y",))
    assert "t: no 'extra' in the first rows: missing until it appears" in seen.notices
    assert seen.schema is not None
    names = [place[0] for place in seen.schema["layout"]]
    extra = seen.x[:, names.index("extra")]
    assert extra[40:].tolist() == list(range(41, 100))
    assert all(value != value for value in extra[:40])
    for read_size in (1, 700):
        assert_same(look(["t"], features=("a", "extra"), target=("y",), read_size=read_size), seen)


def test_columns_of_later_files_are_told() -> None:
    Path("1.csv").write_text("a,y\n1,2\n2,3\n")
    Path("2.csv").write_text("a,y,p,q,r,s,t,u\n" + "1,2,3,4,5,6,7,8\n" * 3)
    Path("3.jsonl").write_text('{"a": 1, "new": 4, "y": 2}\n')
    pq.write_table(pa.table({"a": [1], "z": [3], "y": [2]}), "4.parquet")
    sources = ["1.csv", "2.csv", "3.jsonl", "4.parquet"]
    notices = look(sources).notices
    fate = "it is learned from now on (--features names those to learn)"
    for source, name in (("2.csv", "p"), ("2.csv", "u"), ("3.jsonl", "new"), ("4.parquet", "z")):
        assert f"{source}: the column '{name}' comes first in row 1: {fate}" in notices
    notices = look(sources, features=("a",), target=("y",)).notices
    assert "2.csv: unknown columns are ignored: p, q, r, s, t and 1 more" in notices
    assert "3.jsonl: unknown columns are ignored: new" in notices
    assert "4.parquet: unknown columns are ignored: z" in notices


@pytest.mark.parametrize("form", ["~{}", "{}K", "{}xyz", ">{}.5"])
def test_numbers_with_an_unknown_sign_are_told(form: str) -> None:
    text = form.format(3)
    Path("t").write_text("a,y\n" + "".join(f"{form.format(at % 5)},{at}\n" for at in range(40)))
    told = [notice for notice in look(["t"]).notices if "sign or unit" in notice]
    shown = form.format(0)
    assert told == [
        f"column 'a' holds text such as '{shown}': numbers with a sign or unit are read as "
        "categories (--numeric a reads them as numbers if the unit is always the same)"
    ], text
    Path("c").write_text("a,y\n" + "".join(f"{at},{form.format(at % 5)}\n" for at in range(40)))
    assert any("are read as classes" in notice for notice in look(["c"]).notices)


@pytest.mark.parametrize("form", ["k{}", "town {}", "a-{}", "north"])
def test_plain_categories_are_not(form: str) -> None:
    Path("t").write_text("a,y\n" + "".join(f"{form.format(at % 5)},{at}\n" for at in range(40)))
    assert not any("unit" in notice for notice in look(["t"]).notices)


def test_a_text_too_long_is_no_category() -> None:
    cells = ["x" * 2_000_000 if at == 35 else f"k{at % 3}" for at in range(60)]
    Path("t").write_text("t,a,y\n" + "".join(f"{c},{at},{at}\n" for at, c in enumerate(cells)))
    seen = look(["t"])
    assert seen.schema is not None
    assert seen.schema["columns"][0]["categories"] == ["k0", "k1", "k2"]
    words = "a text of more than 200 characters cannot be a category: read as missing"
    assert f"t: column 't': {words}" in seen.notices
    Path("c").write_text("a,t\n" + "".join(f"{at},{c}\n" for at, c in enumerate(cells)))
    assert look(["c"]).error == (
        "DataError: c:37: column 't': class labels are limited to 200 characters "
        "(got 2,000,000) (use --on-error skip)"
    )
    assert len(look(["c"], on_error="skip").rows) == 59


def test_a_name_without_end_is_refused() -> None:
    Path("t").write_text(f"{'n' * 5000},y\n1,2\n")
    assert "a column name has 5,000 characters, the limit is 1,000" in look(["t"]).error


WIDE = MAX_COLUMNS + 1


def wide(columns: int, form: str) -> bytes:
    """Three rows of as many columns."""
    names = [f"c{at}" for at in range(columns)]
    if form == "csv":
        return (",".join(names) + "\n" + (",".join(["1.5"] * columns) + "\n") * 3).encode()
    if form == "jsonl":
        return (json.dumps(dict.fromkeys(names, 1.5)) + "\n").encode() * 3
    table = pa.table({name: pa.array([1.5, 2.5, 3.5]) for name in names})
    if form == "parquet":
        pq.write_table(table, "made")
        return Path("made").read_bytes()
    return arrow_bytes(table, file=form == "arrow")


FORMS = ["csv", "jsonl", "parquet", "arrow", "arrows"]


@pytest.mark.parametrize("form", FORMS)
def test_wide_files_are_refused_by_counting(form: str) -> None:
    Path("t").write_bytes(wide(WIDE, form))
    said = look(["t"]).error
    if form == "jsonl":
        assert said.startswith("DataError: t:1: has more than 20,000 keys (keep only")
    else:
        assert said.startswith(
            "DataError: t: has 20,001 columns, the limit is 20,000 (choose some: "
            "--target and --features"
        )


@pytest.mark.parametrize("form", [form for form in FORMS if form != "jsonl"])
def test_some_columns_of_a_wide_file_can_be_read(form: str) -> None:
    Path("t").write_bytes(wide(WIDE, form))
    seen = look(["t"], target=("c7",), features=("c1", "c9"))
    assert not seen.error
    assert seen.x.shape == (3, 2)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="memory is measured by POSIX")
@pytest.mark.parametrize("quote", [b"", b'"'])
def test_a_million_columns_cost_little(quote: bytes) -> None:
    header, *rows = wide(1_000_000, "csv").splitlines(keepends=True)
    names = [quote + name + quote for name in header.strip().split(b",")]
    Path("t").write_bytes(b"".join([b",".join(names), b"\n", *rows]))
    Path("small").write_text("a,y\n1,2\n2,3\n")

    def cost(name: str) -> tuple[int, float]:
        call = "from kbnn_cli.app import run_command_line as run\n"
        call += f"run(['train', '{name}', '-q', '--dry-run'])"
        own = "import resource as r; u = r.getrusage(r.RUSAGE_SELF); print(u.ru_maxrss, u.ru_utime)"
        words = [sys.executable, "-c", f"{call}\n{own}"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        peak, seconds = done.stdout.split()[-2:]
        return int(peak), float(seconds)

    (peak, seconds), (least_peak, least_seconds) = cost("t"), cost("small")
    assert peak - least_peak < 200_000  # kilobytes
    assert seconds < 1.5 * least_seconds  # of the processor: no more than to start and to read


@pytest.mark.parametrize("columns", [1, 3, 14, 15, 16, 127, 200, 20_000])
def test_the_index_of_parquet_begins_with_its_width(columns: int) -> None:
    table = pa.table({f"c{at}": [1.5] for at in range(columns)})
    pq.write_table(table, "t")
    assert _read_parquet_width("t") == columns


LINES = {
    "train c.csv": (
        1,
        "c.csv:1: the first line is a comment, not the names of the columns (remove it: "
        "grep -v '^#' c.csv | kbnn train -; or add --header if it names them)",
    ),
    "train twice.csv": (1, "twice.csv: two columns are named 'a' (rename one of them)"),
    "train https://x.org/a.csv": (
        1,
        "https://x.org/a.csv: is a URL, not a file (curl -L https://x.org/a.csv | kbnn train -)",
    ),
    "train s3://bucket/a.csv": (
        1,
        "s3://bucket/a.csv: is a URL, not a file (aws s3 cp s3://bucket/a.csv - | kbnn train -)",
    ),
    "train file:///data/a.csv": (
        1,
        "file:///data/a.csv: is a URL, not a file (read /data/a.csv)",
    ),
    "train a.csv --interval nine": (
        2,
        "--interval takes a share such as 0.9 or 90%, not 'nine'",
    ),
    "train a.csv --interval 190%": (2, "--interval must lie between 0 and 1, not 1.9"),
    "train a.csv --epochs 1.5": (2, "--epochs takes a whole number, not '1.5'"),
    "train a.csv --checkpoint-every soon": (
        2,
        "--checkpoint-every takes a number of seconds, not 'soon'",
    ),
    "train a.csv --activation zz": (
        2,
        "--activation is linear, relu, leaky_relu, sigmoid, tanh, probit, step or "
        "max(alpha,beta); not 'zz'",
    ),
    "trian a.csv": (2, "no such command 'trian': did you mean 'train'? (see 'kbnn --help')"),
    "train a.csv --output x.csv": (
        2,
        "no such option: --output, which is an option of 'kbnn predict' and 'kbnn join'; here it "
        "is --predictions (see 'kbnn train --help')",
    ),
    "train a.csv --limt 3": (
        2,
        "no such option: --limt: did you mean --limit? (see 'kbnn train --help')",
    ),
    "inspect m.npz --quiet": (
        2,
        "no such option: --quiet, which is an option of 'kbnn train' and 'kbnn predict' and "
        "'kbnn evaluate' and 'kbnn join' (see 'kbnn inspect --help')",
    ),
    "predict m.npz a.csv -o a.xlsx": (
        2,
        "a.xlsx: tables are written as .csv, .tsv, .txt, .jsonl, .parquet or .arrow, not .xlsx",
    ),
}


@pytest.mark.parametrize("line", LINES)
def test_words_with_a_remedy(line: str) -> None:
    Path("a.csv").write_text("a,y\n1,2\n2,3\n")
    Path("c.csv").write_text("# made by a, b\na,y\n1,2\n")
    Path("twice.csv").write_text("a,a,y\n1,2,3\n")
    code, said = LINES[line]
    ran = kbnn(*line.split())
    assert (ran.code, ran.out, ran.err) == (code, "", f"kbnn: {said}\n")


def test_percent_is_a_share_and_a_header_may_begin_with_a_hash() -> None:
    Path("a.csv").write_text("#id,y\n" + "".join(f"{at},{at % 9}.5\n" for at in range(40)))
    words = ("train", "a.csv", "-q", "--predictions", "-")
    plain = kbnn(*words, "--interval", "0.8")
    assert plain.code == 0
    assert kbnn(*words, "--interval", "80%", "--fresh").out == plain.out
    assert load("model.npz").schema.features == ["#id"]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_its_screen(command: str, width: int) -> None:
    asked = "--help-all" if command else "--help"
    ran = program(*command.split(), asked, COLUMNS=str(width), TERMINAL_WIDTH=str(width))
    assert max(map(len, ran.out.splitlines())) <= width
    for leak in ("{", "<str", "<list", "...\n  "):
        assert leak not in ran.out.replace("SOURCES...", "")
    if command:
        assert all(name in ran.out for name in list_option_names(command))


def test_how_many_rows_there_will_be_is_guessed_and_never_more_than_asked_for() -> None:
    Path("t.csv").write_text("a,y\n" + "".join(f"{at % 7},{at % 5}.5\n" for at in range(3000)))
    for limit, least, most in ((None, 2900, 3100), (500, 500, 500), (9000, 2900, 3100)):
        with open_stream(["t.csv"], options=ReadOptions(limit=limit)) as stream:
            assert stream.expected_rows is not None
            assert least <= stream.expected_rows <= most


def test_progress_counts_the_rows_that_were_handed_out() -> None:
    lines = "".join(f"{at},{at % 7},{2 * at}\n" for at in range(100_000))
    Path("t.csv").write_text(f"a,b,y\n{lines}")
    for name in ("t.csv", "t.parquet", "t.arrow"):
        if name != "t.csv":
            table = pa.table({"a": range(100_000), "y": [1.5] * 100_000})
            made = arrow_bytes(table, file=True, rows=5000)
            Path(name).write_bytes(made)
            if name == "t.parquet":
                pq.write_table(table, name)
        with open_stream([name], options=ReadOptions(block_rows=1000)) as stream:
            assert stream.total_bytes
            seen = 0
            for block in stream:
                seen += len(block.number)
                share = stream.bytes_read / stream.total_bytes
                assert abs(share - seen / 100_000) < 0.06, name


def test_why_no_column_is_left_is_said(tmp_path: Path) -> None:
    data = tmp_path / "shares.csv"
    data.write_text("p,y\n" + "".join(f"n{at},{at}\n" for at in range(60)))
    ran = kbnn("train", data, "-m", tmp_path / "m.npz")
    assert ran.code == 1
    why = "'p' holds values that nearly all differ"
    assert f"kbnn: no column is left to learn from: {why}. To forecast" in ran.err


def test_a_long_run_says_that_it_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = SAMPLES / "cubic.csv"
    words = {"train": ("train", sample, "-m", "m.npz"), "evaluate": ("evaluate", "m.npz", sample)}
    words["predict"] = ("predict", "m.npz", sample, "-o", "p.csv")
    shown = {"train": "training: ", "evaluate": "evaluating: ", "predict": "predicting: "}
    for name, said in words.items():
        monkeypatch.setattr("kbnn_cli.display.HEARTBEAT_SECONDS", 10.0)
        assert "so far" not in kbnn(*said, *(["--fresh"] if name == "train" else [])).err
        monkeypatch.setattr("kbnn_cli.display.HEARTBEAT_SECONDS", 0.0)
        ran = kbnn(*said, *(["--fresh"] if name == "train" else []))
        lines = [line for line in ran.err.splitlines() if " so far, " in line]
        assert lines
        assert all(line.startswith(f"kbnn: {shown[name]}") for line in lines)
        assert " so far" not in kbnn(*said, "-q", *(["--fresh"] if name == "train" else [])).err


def test_a_long_choice_of_labels_says_that_it_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = SAMPLES / "cubic.csv"
    assert kbnn("train", sample, "-m", "m.npz", "-q", "--layers", "5").code == 0
    words = ("predict", "m.npz", sample, "--ask", "3", "-o", "p.csv")
    assert "choosing" not in kbnn(*words).err
    monkeypatch.setattr("kbnn_cli.display.HEARTBEAT_SECONDS", 0.0)
    lines = kbnn(*words).err.splitlines()
    chosen = [line.removeprefix("kbnn: choosing rows to label: ") for line in lines]
    assert {"800 rows read", "800 of 800 rows compared", "3 of 3 chosen"} <= {*chosen}
    assert "choosing" not in kbnn(*words, "-q").err


def test_predictions_in_a_pipe_say_that_they_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = SAMPLES / "cubic.csv"
    assert kbnn("train", sample, "-m", "m.npz", "-q", "--layers", "5").code == 0
    monkeypatch.setattr("kbnn_cli.display.HEARTBEAT_SECONDS", 0.0)
    assert "predicting: 800 rows so far" in kbnn("predict", "m.npz", sample).err
    words = ("predict", "m.npz", sample, "--limit", "70", "--explain")
    counts = [line.split()[2] for line in kbnn(*words).err.splitlines() if "so far" in line]
    assert counts == ["32", "64", "70"]
