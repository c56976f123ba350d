"""The sample files are what their stories say, and the script makes exactly these bytes."""

from pathlib import Path

import numpy as np
import pytest

from samples import make

FOLDER = Path(make.__file__).parent
MISSING = {"", "NA"}


def read(name: str) -> dict[str, list[str]]:
    lines = (FOLDER / name).read_text("ascii").splitlines()
    header, *rows = (line.split(",") for line in lines)
    return {
        column: list(cells) for column, cells in zip(header, zip(*rows, strict=True), strict=True)
    }


def numbers(cells: list[str]) -> make.FloatArray:
    return np.array([np.nan if cell in MISSING else float(cell) for cell in cells])


def test_script_writes_the_same_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make.main([str(tmp_path)])
    assert "sensors.csv" in capsys.readouterr().out
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == sorted(path.name for path in FOLDER.glob("*.csv"))
    for name in written:
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes(), name


def test_files_are_small_and_plain() -> None:
    content = [path.read_bytes() for path in FOLDER.glob("*.csv")]
    assert sum(map(len, content)) < 1_000_000
    assert all(b"\r" not in part and part.endswith(b"\n") for part in content)


def test_draws_are_uniform_and_normal() -> None:
    draws = make.Draws(1)
    u, z = draws.uniform(100_000, -4.0, 4.0), draws.normal(100_000)
    assert -4.0 <= u.min() < -3.999
    assert 3.999 < u.max() < 4.0
    assert abs(u.mean()) < 0.03
    assert abs(u.var() - 64 / 12) < 0.05
    assert abs(z.mean()) < 0.01
    assert abs(z.var() - 1.0) < 0.02
    assert abs((z**4).mean() - 3.0) < 0.1
    assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 0.01
    assert sorted(make.Draws(2).order(50).tolist()) == list(range(50))


@pytest.mark.parametrize(
    ("name", "rows", "slack"), [("cubic", 800, 0.25), ("cubic_small", 40, 1.0)]
)
def test_cubic_has_noise_of_variance_nine(name: str, rows: int, slack: float) -> None:
    table = read(f"{name}.csv")
    x, y = numbers(table["x"]), numbers(table["y"])
    assert list(table) == ["x", "y"]
    assert x.shape == (rows,)
    assert x.min() >= -4.0
    assert x.max() <= 4.0
    assert np.ptp(x) > 7.5
    assert abs((y - x**3).std() - 3.0) < slack


def plane(name: str) -> make.Points:
    table = read(name)
    assert list(table) == ["x1", "x2", "label"]
    x = np.column_stack([numbers(table["x1"]), numbers(table["x2"])])
    return x, np.array(table["label"], dtype=np.int64)


def distance_to_arc(x: make.FloatArray, label: make.IntArray) -> make.FloatArray:
    """Signed distance from the circle that carries the row's moon."""
    centre = np.where(label[:, None] == 0, [0.0, 0.0], [1.0, 0.5])
    distance: make.FloatArray = np.hypot(*(x - centre).T) - 1.0
    return distance


def test_moons_lie_on_two_arcs_with_noise_a_tenth() -> None:
    x, label = plane("moons.csv")
    assert x.shape == (1500, 2)
    assert label.sum() == 750
    assert abs(distance_to_arc(x, label).std() - 0.1) < 0.005
    assert np.count_nonzero(np.diff(label)) > 650, "classes come mixed, not one after the other"


def test_circles_have_radius_one_and_a_half() -> None:
    x, label = plane("circles.csv")
    assert x.shape == (1500, 2)
    assert label.sum() == 750
    radius = np.hypot(*x.T)
    for c, expected in ((0, 1.0), (1, 0.5)):
        assert abs(radius[label == c].mean() - expected) < 0.02
        assert abs(radius[label == c].std() - 0.1) < 0.01


def test_rotating_moons_turn_by_twenty_degrees_a_step() -> None:
    x, label = plane("rotating_moons.csv")
    assert x.shape == (1500 + 18 * 100, 2)
    assert abs(distance_to_arc(x[:1500], label[:1500]).std() - 0.1) < 0.005
    for step in range(1, 19):
        part = slice(1400 + 100 * step, 1500 + 100 * step)
        back = make.turn(x[part], -20.0 * step)
        assert abs(distance_to_arc(back, label[part]).std() - 0.1) < 0.03, step
        assert label[part].sum() == 50
    half_way = slice(1500 + 800, 1500 + 900)
    assert (distance_to_arc(x[half_way], 1 - label[half_way]).std()) < 0.15, "180 degrees swap them"


def test_turning_keeps_the_centre_and_goes_anticlockwise() -> None:
    start = np.array([make.MOON_CENTRE, (1.5, 0.25)])
    np.testing.assert_allclose(make.turn(start, 90.0), [make.MOON_CENTRE, (0.5, 1.25)], atol=1e-12)


def test_sensors_have_gaps_and_a_late_category() -> None:
    table, later = read("sensors.csv"), read("sensors_test.csv")
    assert list(table) == list(later)
    assert len(table["power_kw"]) == 4000
    assert len(later["power_kw"]) == 1000
    cells = [cell for name in table if name != "power_kw" for cell in table[name]]
    for token in MISSING:
        assert 0.01 < cells.count(token) / len(cells) < 0.02
    assert not MISSING & set(table["power_kw"])
    assert table["valve"].index("purge") > make.DRIFT_ROW
    assert set(table["valve"]) - MISSING == {"open", "throttled", "bypass", "recycle", "purge"}
    assert set(later["valve"]) <= set(table["valve"])


def power_without_noise(table: dict[str, list[str]]) -> make.FloatArray:
    """The story's equation for a clean filter, computed from the columns of the file."""
    load, temp = numbers(table["load_pct"]), numbers(table["inlet_temp_c"])
    ratio = numbers(table["outlet_pressure_bar"]) / numbers(table["inlet_pressure_bar"])
    factors = {"open": 1.0, "throttled": 1.08, "bypass": 1.2, "recycle": 1.35, "purge": 0.8}
    factor = np.array([factors.get(name, np.nan) for name in table["valve"]])
    power: make.FloatArray = 150 + 75 * load * (temp + 273.15) / 288 * (ratio**0.23 - 1) * factor
    return power


def test_sensors_noise_grows_with_load_and_the_filter_fouls_half_way() -> None:
    table = read("sensors.csv")
    load, clean = numbers(table["load_pct"]), power_without_noise(table)
    before, after = slice(0, make.DRIFT_ROW), slice(make.DRIFT_ROW, None)
    residual = numbers(table["power_kw"]) - clean
    z = (residual / make.sensor_noise_sd(load))[before]
    assert abs(np.nanmean(z)) < 0.1
    for low, high in ((15, 45), (45, 70), (70, 100)):
        band = (load[before] >= low) & (load[before] < high)
        assert abs(np.nanstd(z[band]) - 1.0) < 0.12, (low, high)
    rise = (residual / (clean * load / 100))[after]
    assert abs(np.nanmedian(rise) - 0.12) < 0.005


def test_sensors_test_part_belongs_to_the_second_regime() -> None:
    table = read("sensors_test.csv")
    load, clean = numbers(table["load_pct"]), power_without_noise(table)
    rise = (numbers(table["power_kw"]) - clean) / (clean * load / 100)
    assert abs(np.nanmedian(rise) - 0.12) < 0.005


def test_visits_are_counts_and_more_at_noon_on_weekends_and_with_an_offer() -> None:
    table = read("visits.csv")
    count, hour = numbers(table["visits"]), numbers(table["hour"])
    assert np.all(count == np.rint(count))
    assert count.min() == 0.0
    noon, morning = count[np.abs(hour - 12.5) < 1.0], count[hour < 10.0]
    assert noon.mean() > 1.5 * morning.mean()
    weekend, offer = np.isin(table["day"], ["Sat", "Sun"]), np.array(table["offer"]) == "true"
    assert 1.4 < count[weekend].mean() / count[~weekend].mean() < 2.0
    assert 1.2 < count[offer].mean() / count[~offer].mean() < 1.8
    assert count.var() > 2.0 * count.mean()  # more than a Poisson


def test_prices_fall_by_factors() -> None:
    table = read("prices.csv")
    price, age, power = (numbers(table[name]) for name in ("price_eur", "age_years", "power_kw"))
    new = {"Anta": 180, "Borel": 240, "Corva": 130, "Delmont": 420, "Eiko": 200}
    value = np.log(price / (power * np.array([new[name] for name in table["make"]])))
    rest = value + 0.13 * age + 0.25 * numbers(table["km"]) / 1e5
    rest -= 0.1 * (np.array(table["gearbox"]) == "automatic")
    assert abs(rest.mean()) < 0.02
    assert 0.23 < rest.std() < 0.27


def test_rain_is_none_or_any_amount() -> None:
    table = read("rain.csv")
    rain, humidity = numbers(table["rain_mm"]), numbers(table["humidity_pct"])
    pressure, west = numbers(table["pressure_hpa"]), np.array(table["wind"]) == "west"
    score = 0.08 * (humidity - 75.0) - 0.12 * (pressure - 1013.0) + west
    share = 1.0 / (1.0 + np.exp(-score))
    assert abs(np.mean(rain > 0.0) - share.mean()) < 0.02
    assert abs(np.mean(rain[share > 0.7] > 0.0) - share[share > 0.7].mean()) < 0.05
    much = 1.0 + 0.02 * (humidity - 75.0) - 0.04 * (pressure - 1013.0)
    much += 0.03 * (numbers(table["temp_c"]) - 10.0)
    assert rain[rain > 0.0].min() == 0.1
    assert abs((rain / np.exp(much))[rain > 0.0].mean() - 1.0) < 0.1


def test_the_load_has_its_shifts_its_winter_and_its_break() -> None:
    table = read("load.csv")
    assert list(table) == ["time", "load_kw"]
    when = np.array(table["time"], dtype="datetime64[h]")
    assert (np.diff(when) == np.timedelta64(1, "h")).all()
    assert (str(when[0]), str(when[-1])) == ("2025-01-01T00", "2025-12-31T23")
    load = numbers(table["load_kw"]).reshape(365, 24)
    day = np.arange(365)
    weekday = (when[::24].astype("datetime64[D]").astype(int) + 3) % 7
    still = (day >= make.BREAK[0]) & (day < make.BREAK[1])
    working = (weekday < 5) & ~still
    assert 330 < load[working][:, 8:11].mean() < 420
    assert load[working][:, 12].mean() < load[working][:, 9].mean() - 40
    assert load[weekday == 6].mean() < 150
    assert load[still].mean() < 110
    night = load[:, 3]
    assert night[:31].mean() > night[180:211].mean() + 50


def test_pump_has_three_faults() -> None:
    table, events = read("pump.csv"), read("pump_events.csv")
    assert events["what"] == ["surge", "stuck sensor", "wear"]
    start = [table["time"].index(time) for time in events["start"]]
    end = [table["time"].index(time) for time in events["end"]]
    speed, flow, pressure = (numbers(table[n]) for n in ("speed_rpm", "flow_m3h", "pressure_bar"))
    off = pressure - (2.0 + 5.0 * (speed / 1450.0) ** 2 - 0.02 * flow)
    assert off[start[0]] == pytest.approx(3.0, abs=0.2)
    assert start[0] < end[0] == start[0] + 4
    assert len(set(pressure[start[1] : end[1] + 1])) == 1
    healthy = np.delete(off[: start[2]], [start[0], *range(start[1], end[1] + 1)])
    assert healthy.std() == pytest.approx(0.04, abs=0.005)
    assert abs(healthy.mean()) < 0.01
    assert off[-100:].mean() == pytest.approx(-0.6, abs=0.02)
