"""Clocks: every spelling and unit is the same moment, and says what is learned from it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import kbnn
from kbnn.data.clock import DAY_SECONDS, Clock, TimeUnit, compute_cycle_phase, format_times
from kbnn.data.timestamps import detect_times, guess_tick_unit, parse_times, parse_timestamp
from kbnn.data.values import TICKS_PER_SECOND, MissingSpellings
from tests.commands import kbnn as command
from tests.streams import Seen, assert_same, csv_bytes, every_format, parquet_bytes
from tests.streams import look as look_with_lags


def look(paths: Sequence[Path], **options: Any) -> Seen:
    """Read sources without lags, so that only the clock adds columns."""
    return look_with_lags(paths, **{"lags": "off", **options})


MOMENT = datetime(2026, 3, 14, 15, 9, tzinfo=UTC).timestamp()

SPELLINGS = [
    "2026-03-14 15:09",
    "2026-03-14T15:09:00",
    "2026-03-14T15:09:00Z",
    "2026-03-14 15:09:00.000 UTC",
    "2026-03-14T17:09:00+02:00",
    "2026-03-14 10:09-0500",
    "2026-03-14T20:39:00+05:30",
    "2026-03-14 11:39-0330",
    "2026/03/14 15:09",
    "14.03.2026 15:09",
    "03/14/2026 3:09 PM",
    "14 Mar 2026 15:09",
    "March 14, 2026 15:09",
    "Sat, 14 Mar 2026 15:09",
    "14-Mar-26 15:09",
    "20260314T150900",
]


@pytest.mark.parametrize("unit", TICKS_PER_SECOND)
def test_numbers_of_any_type_are_ticks_and_flags_are_no_time(unit: TimeUnit) -> None:
    ticks = [None, 0, 90 * int(TICKS_PER_SECOND[unit])]
    none = MissingSpellings()
    for kind in (pa.int64(), pa.float64(), pa.string()):
        read = parse_times(pa.array(ticks).cast(kind), unit, False, none)
        assert np.array_equal(read.values[1:], [[0.0, 0.0], [90.0, 90.0]])
        assert np.isnan(read.values[0]).all()
    flags = parse_times(pa.array([True, False]), unit, False, none)
    assert np.isnan(flags.values).all()
    assert flags.unparsed == {}


@pytest.mark.parametrize("text", SPELLINGS)
def test_many_spellings_of_one_moment(text: str) -> None:
    found = parse_timestamp(text)
    assert found is not None
    assert found.instant == MOMENT


@pytest.mark.parametrize(
    ("number", "unit"),
    [(1.7e9, "s"), (9e10, "s"), (1e11, "ms"), (1.7e12, "ms"), (9e13, "ms"), (1e14, "us"),
     (1.7e15, "us"), (9e16, "us"), (1e17, "ns"), (1.7e18, "ns")],
)  # fmt: skip
def test_a_number_of_our_time_says_its_unit_by_its_size(number: float, unit: str) -> None:
    assert guess_tick_unit(number) == unit


@pytest.mark.parametrize(
    ("first", "alone", "clock"),
    [(999, True, False), (1000, True, True), (2026, True, True), (2026, False, False),
     (2999, True, True), (3000, True, False)],
)  # fmt: skip
def test_years_are_a_clock_beside_a_target_alone(first: int, alone: bool, clock: bool) -> None:
    years = [str(first + at) for at in range(20)]
    assert (detect_times("year", years, alone=alone) is not None) == clock
    assert detect_times("year", ["2026", "2026"], alone=True) is None
    assert detect_times("amount", years, alone=True) is None


def test_the_wall_keeps_its_own_time() -> None:
    found = parse_timestamp("2026-03-14T17:09:00+02:00")
    assert found is not None
    assert found.local - found.instant == 7200.0
    assert found.has_zone


@pytest.mark.parametrize(
    ("text", "order", "month", "day_first"),
    [("12/05/2026", "either", 12, 5), ("13/05/2026", "day", 5, 5), ("05/13/2026", "month", 5, 5),
     ("05/12/2026", "either", 5, 12), ("12.05.2026", "day", 5, 5)],
)  # fmt: skip
def test_days_and_months_are_told_apart_where_they_can_be(
    text: str, order: str, month: int, day_first: int
) -> None:
    for first, expected in ((False, month), (True, day_first)):
        found = parse_timestamp(text, first)
        assert found is not None
        assert found.order == order
        assert datetime.fromtimestamp(found.local, UTC).month == expected


def test_a_leap_second_is_the_one_before_midnight() -> None:
    leap, after = parse_timestamp("2016-12-31 23:59:60"), parse_timestamp("2017-01-01 00:00:00")
    assert leap is not None
    assert leap == after


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-30",
        "2026-13-01",
        "25:00",
        "2026-01-01 24:00",
        "2026-01-01 10:00:61",
        "12",
        "blue",
        "31/31/2026",
    ],
)
def test_what_is_no_moment(text: str) -> None:
    assert parse_timestamp(text) is None


def hours(count: int = 60, **step: float) -> list[datetime]:
    every = timedelta(**(step or {"hours": 1}))
    return [datetime(2026, 3, 27) + at * every for at in range(count)]


def series(moments: list[str]) -> str:
    rows = [f"{m},{at % 7},{at % 5}" for at, m in enumerate(moments)]
    return "when,x,y\n" + "\n".join(rows) + "\n"


def learned_from(path: Path, **options: Any) -> list[str]:
    seen = look([path], **options)
    assert not seen.error, seen.error
    assert seen.schema is not None
    return [place[0] for place in seen.schema["layout"]]


@pytest.mark.parametrize(
    ("step", "names"),
    [
        ({"minutes": 10}, ["day", "week", "year"]),
        ({"hours": 1}, ["day", "week", "year"]),
        ({"days": 1}, ["week", "year"]),
        ({"days": 7}, ["year"]),
        ({"days": 30}, ["year"]),
        ({"days": 365}, []),
    ],
)
def test_a_cycle_is_learned_where_the_rows_can_show_it(
    step: dict[str, float], names: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(series([str(moment) for moment in hours(40, **step)]))
    waves = [f"when {name} {wave}" for name in names for wave in ("sin", "cos")]
    assert learned_from(path) == ["x", *waves, "when elapsed"]


def test_rows_in_no_order_show_what_differs(tmp_path: Path) -> None:
    moments = hours(40, hours=31)
    np.random.default_rng(0).shuffle(moments)
    path = tmp_path / "t.csv"
    path.write_text(series([str(moment) for moment in moments]))
    assert "when week sin" in learned_from(path)
    path.write_text(series([str(moment.date()) for moment in moments]))
    assert "when day sin" not in learned_from(path)


def test_the_features_are_those_of_the_calendar(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(series([str(moment) for moment in hours()]))
    x = look([path]).x
    moments = hours()
    day = [2 * np.pi * moment.hour / 24 for moment in moments]
    week = [2 * np.pi * (moment.weekday() + moment.hour / 24) / 7 for moment in moments]
    year = [2 * np.pi * (m.timetuple().tm_yday - 1 + m.hour / 24) / 365 for m in moments]
    expected = [f(angle) for angle in (day, week, year) for f in (np.sin, np.cos)]
    np.testing.assert_allclose(x[:, 1:7], np.transpose(expected), atol=1e-9)
    np.testing.assert_allclose(x[:, 7], np.arange(60) / 24)


def test_every_spelling_gives_the_same_rows(tmp_path: Path) -> None:
    forms = {
        "plain": [m.strftime("%Y-%m-%d %H:%M") for m in hours()],
        "iso": [m.isoformat() for m in hours()],
        "slashes": [m.strftime("%Y/%m/%d %H:%M:%S") for m in hours()],
        "zone": [m.isoformat() + "Z" for m in hours()],
        "german": [m.strftime("%d.%m.%Y %H:%M") for m in hours()],
        "american": [m.strftime("%m/%d/%Y %I:%M %p") for m in hours()],
        "named": [m.strftime("%d-%b-%Y %H:%M") for m in hours()],
        "compact": [m.strftime("%Y%m%dT%H%M%S") for m in hours()],
    }
    path = tmp_path / "t.csv"
    path.write_text(series(forms["plain"]))
    plain = look([path])
    for moments in forms.values():
        path.write_text(series(moments))
        seen = look([path])
        np.testing.assert_array_equal(seen.x, plain.x)
        assert (
            seen.notices[-1]
            .removeprefix("column 'when' is the clock")
            .startswith((": hour", ", days"))
        )


@pytest.mark.parametrize(("unit", "ticks"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_numbers_since_1970(unit: str, ticks: int, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(series([str(m) for m in hours()]))
    plain = look([path])
    instants = [int(m.replace(tzinfo=UTC).timestamp()) * ticks for m in hours()]
    path.write_text(series([str(instant) for instant in instants]))
    for told in ("auto", unit):
        np.testing.assert_array_equal(look([path], time="when", time_unit=told).x, plain.x)
    path.write_text(series([str(i) for i in instants]).replace("when", "timestamp"))
    np.testing.assert_array_equal(look([path]).x, plain.x)
    path.write_text(series([str(i) for i in instants]).replace("when", "stock"))
    assert look([path]).x.shape[1] == 2  # a number like any other


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_every_unit_and_format(unit: str, tmp_path: Path) -> None:
    y = [0.5 * at for at in range(60)]
    table = pa.table({"when": pa.array(hours(), pa.timestamp(unit)), "x": range(60), "y": y})
    (tmp_path / "t.csv").write_text(series([str(m) for m in hours()]))
    (tmp_path / "t.parquet").write_bytes(parquet_bytes(table))
    (tmp_path / "s.csv").write_bytes(csv_bytes(table))
    one, other = look([tmp_path / "t.parquet"]), look([tmp_path / "s.csv"])
    assert_same(one, other, words=False)  # texts have a layout of their own
    zoned = table.set_column(0, "when", pa.array(hours(), pa.timestamp(unit, "Europe/Berlin")))
    (tmp_path / "z.parquet").write_bytes(parquet_bytes(zoned))
    there = look([tmp_path / "z.parquet"]).x
    np.testing.assert_array_equal(there[:, 7], one.x[:, 7])  # as much time passes
    angle = np.arctan2(there[:, 1], there[:, 2]) - np.arctan2(one.x[:, 1], one.x[:, 2])
    ahead = np.mod(np.round(angle / (2 * np.pi) * 24), 24)
    assert ahead[0] == 1.0  # the wall is an hour ahead,
    assert ahead[-1] == 2.0  # and two after the last Sunday of March


def test_dates_are_clocks_in_every_format(tmp_path: Path) -> None:
    days = [datetime(2025, 1, 1).date() + timedelta(days=at) for at in range(50)]
    table = pa.table({"day": [str(d) for d in days], "y": [float(at % 7) for at in range(50)]})
    readings = []
    for name, content in every_format(table).items():
        (tmp_path / "t").write_bytes(content)
        readings.append(look([tmp_path / "t"]))
        assert readings[-1].error == "", name
        assert_same(readings[0], readings[-1])
    typed = pa.table({"day": pa.array(days, pa.date32()), "y": table["y"]})
    (tmp_path / "t").write_bytes(parquet_bytes(typed))
    assert_same(readings[0], look([tmp_path / "t"]))


def test_a_cut_changes_no_bit(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(series([m.isoformat() + "+01:00" for m in hours(200)]))
    whole = look([path])
    for size in (11, 100, 1 << 20):
        assert_same(whole, look([path], read_size=size, block_rows=7))
    assert_same(whole, look([path], block_rows=1))


def test_summer_time_moves_the_wall_and_not_the_time_that_passes(tmp_path: Path) -> None:
    before = [f"2026-03-29T0{h}:00+01:00" for h in range(2)]
    after = [f"2026-03-29T0{h}:00+02:00" for h in range(3, 9)]
    path = tmp_path / "t.csv"
    path.write_text(series(before + after))
    x = look([path]).x
    np.testing.assert_allclose(np.diff(x[:, -1]) * 24, 1.0)
    turned = np.unwrap(np.arctan2(x[:, 1], x[:, 2])) / (2 * np.pi) * 24
    np.testing.assert_allclose(np.diff(turned), [1, 2, 1, 1, 1, 1, 1])


def test_what_is_unusual_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    moments = [str(m) for m in hours(80)]
    moments[50], moments[51] = moments[51], moments[50]
    moments[60] = moments[59]
    path.write_text(series(moments))
    for size in (13, 1 << 20):
        notices = look([path], read_size=size, block_rows=3).notices
        assert notices[-2:] == [
            f"{path}: the time goes backwards in row 52: rows are processed in the given order "
            "(if another series begins there, --key COLUMN keeps one model per series)",
            f"{path}: row 61 has the same time as the row before it: both are processed, "
            "in this order",
        ]


@pytest.mark.parametrize("many", [2, 3])
def test_several_series_in_one_file_are_remarked(many: int, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(series([str(m) for m in hours(30) for _ in range(many)]))
    notices = [
        notice for notice in look([path]).notices if "several rows have the same time" in notice
    ]
    assert len(notices) == 1
    assert "--key COLUMN keeps one model per series" in notices[0]


@pytest.mark.parametrize("sorted_by", ["key", "time"])
def test_with_a_key_each_series_has_its_lags(sorted_by: str, tmp_path: Path) -> None:
    rows = [(f"2026-03-{1 + at % 28:02},{key}", at) for key in "abc" for at in range(28)]
    rows.sort(key=lambda row: row[0] if sorted_by == "time" else row[0].split(",")[1])
    path = tmp_path / "t.csv"
    path.write_text("day,who,y\n" + "".join(f"{cells},{at}.5\n" for cells, at in rows))
    words: Any = {"ignore": ("who",), "key": ("who",)}
    seen = look_with_lags([path], **words)
    assert_same(look_with_lags([path], read_size=13, block_rows=3, **words), seen)
    assert any("lags 1, 2, 3, 7, 8 of 'y' are inputs" in note for note in seen.notices)
    assert not any("--key" in note or "row" in note for note in seen.notices[2:])


@pytest.mark.parametrize(("lags", "noticed"), [(None, True), ("1,2", False), ("off", False)])
def test_a_fleet_without_default_lags_says_why(
    lags: str | None, noticed: bool, tmp_path: Path
) -> None:
    """The first 32 rows have one row of each of 60 keys."""
    path = tmp_path / "t.csv"
    cells = [f"2026-03-{1 + day:02},k{k},{day}.5\n" for day in range(28) for k in range(60)]
    path.write_text("day,who,y\n" + "".join(cells))
    seen = look_with_lags([path], ignore=("who",), key=("who",), lags=lags)
    assert any("no lags are learned: the first rows" in note for note in seen.notices) == noticed


def test_a_moment_that_cannot_be_read_is_a_flaw(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    moments = [str(m) for m in hours(40)]
    moments[35] = "noon"
    path.write_text(series(moments))
    assert look([path]).error == (
        f"DataError: {path}:37: column 'when': cannot read 'noon' as a timestamp "
        "(use --na 'noon' or --on-error skip)"
    )
    seen = look([path], na=("noon",))
    assert np.isnan(seen.x[35, 1:]).all()
    assert seen.x[35, 0] == 0.0


def test_a_clock_can_be_named_and_dropped(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [f"{m},{m.date()},{at % 7},{at % 5}" for at, m in enumerate(hours(40))]
    path.write_text("when,day,x,y\n" + "\n".join(rows) + "\n")
    assert learned_from(path)[1].startswith("when")
    assert "column 'day' is ignored: it holds timestamps" in look([path]).notices
    assert learned_from(path, time="day")[1].startswith("day")
    assert learned_from(path, ignore=("when", "day")) == ["x"]
    ran = command("train", path, "-m", tmp_path / "m.npz", "--time", "x")
    assert (ran.code, "--time x: cannot read '0' as a timestamp" in ran.err) == (1, True)
    ran = command("train", path, "-m", tmp_path / "n.npz", "--time", "y", "--target", "y")
    assert "cannot be both the target and the clock" in ran.err
    ran = command("train", path, "-m", tmp_path / "n.npz", "--time", "when", "--ignore", "when")
    assert ran.code == 2
    ran = command("train", path, "-m", tmp_path / "n.npz", "--time-unit", "hours")
    assert "--time-unit is auto, s, ms, us, ns or year, not 'hours'" in ran.err


def test_the_target_is_the_last_column_but_the_clock(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,y,when\n" + "\n".join(f"{i},{i % 4},{m}" for i, m in enumerate(hours(40))))
    seen = look([path])
    assert seen.notices[0] == "target: last column except the clock, 'y' (choose with --target)"


def test_a_column_that_is_left_out_is_not_taken_for_the_target(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,note,day\n" + "".join(f"{k},{k},2026-01-{k + 1:02}\n" for k in range(28)))
    refused = look([path], ignore=("note",)).error
    assert "target 'day' holds dates or times" in refused
    assert "choose another with --target" in refused


def test_one_row_at_a_time_means_the_same() -> None:
    model = kbnn.Model("y", layers=5, time="when", features=["when", "x"])
    for at, moment in enumerate(hours(60)):
        given = (moment, str(moment), np.datetime64(moment))[at % 3]
        model.learn_one({"when": given, "x": at % 7}, float(at % 5))
    inner = model._require_single_model()
    kept = inner.learner_state.buffer.rows().x
    clock = inner.schema.clock
    assert clock is not None
    local = np.array([(m - datetime(1970, 1, 1)).total_seconds() for m in hours(60)])
    expected = clock.encode_times(np.stack((local, local), axis=1))
    np.testing.assert_allclose(kept[:, 1:], expected)
    with pytest.raises(kbnn.KbnnError, match="cannot read 'noon' as a timestamp"):
        model.learn_one({"when": "noon", "x": 1}, 1.0)


@pytest.mark.parametrize(
    ("days", "months", "season"),
    [(18, 0, 0), (28, 0, 0), (29, 1, 12), (31, 1, 12), (32, 0, 0), (84, 0, 0), (91, 3, 4)],
)
def test_four_weeks_are_no_month(days: int, months: int, season: int) -> None:
    clock = Clock("t", "text", 0.0, days * DAY_SECONDS, [], [])
    assert (clock.months_per_step, clock.season_steps) == (months, season)


@pytest.mark.parametrize(("days", "season"), [(1, 7), (2, 0), (7, 52), (8, 0)])
def test_days_come_round_in_a_week_and_weeks_in_a_year(days: int, season: int) -> None:
    assert Clock("t", "text", 0.0, days * DAY_SECONDS, [], []).season_steps == season


def test_months_are_months_and_texts_come_back() -> None:
    day = datetime(2025, 1, 31, tzinfo=UTC).timestamp()
    clock = Clock("t", "text", day, 30.4 * DAY_SECONDS, ["year"], ["a", "b"], written="day")
    ahead = clock.extend_times(np.array([day, day]), 3)
    assert format_times(clock, ahead) == ["2025-02-28", "2025-03-31", "2025-04-30"]
    assert clock.season_steps == 12
    hour = Clock("t", "text", day, 3600.0, [], [], zoned=True)
    assert hour.season_steps == 24
    assert format_times(hour, hour.extend_times(np.array([day, day + 3600.0]), 1)) == [
        "2025-01-31T02:00:00+01:00"
    ]
    assert compute_cycle_phase("year", np.array([np.nan, day]))[1] == pytest.approx(30 / 365)


def test_years_of_two_digits_are_told_and_those_in_doubt_ignored(tmp_path: Path) -> None:
    def spelt(form: str) -> Any:
        rows = [f"{day:{form}},{at % 7},{at}.5\n" for at, day in enumerate(hours(60, days=1))]
        (tmp_path / "t").write_text("".join(["day,a,y\n", *rows]))
        return look([tmp_path / "t"])

    said = "column 'day' is the clock, years 1969 to 2068 in two digits"
    assert any(said in note for note in spelt("%d-%b-%y").notices)
    seen = spelt("%d/%m/%y")
    assert seen.schema["columns"][0]["kind"] == "ignored"
    assert any(
        "such as '27/03/26'" in n and "(write years with four digits)" in n for n in seen.notices
    )


@pytest.mark.parametrize(
    ("text", "year"), [("5-Jan-68", 2068), ("5-Jan-69", 1969), ("5-Jan-99", 1999)]
)
def test_two_digit_years_are_those_of_posix(text: str, year: int) -> None:
    found = parse_timestamp(text)
    assert found is not None
    assert datetime.fromtimestamp(found.local, UTC).year == year
