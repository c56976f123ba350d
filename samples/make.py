"""Write the sample files: ``python -m samples.make [FOLDER]``.

Every file is made here, from fixed seeds, and is the same bytes at every run and on every machine.
Two choices see to that. All randomness comes from the raw 64-bit words of PCG64, the one part of
numpy's random module whose stream is promised never to change; the uniform and normal numbers
are made from them below. And every number is written with few decimals, so that the last bit of
somebody's cosine never reaches a file.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Points = tuple[FloatArray, IntArray]

MOON_CENTRE = (0.5, 0.25)
MOON_ROWS, STEPS, STEP_ROWS, STEP_DEGREES = 1500, 18, 100, 20
SENSOR_ROWS, SENSOR_TEST_ROWS = 4000, 1000
DRIFT_ROW = 2000  # rows before the filter fouls
PURGE_ROW = 2600  # rows before the first purge
ROWS_A_DAY = 288
LOAD_HOURS = 365 * 24
VISIT_ROWS, MOST_VISITS = 3000, 120
PRICE_ROWS = 2500
RAIN_DAYS = 2000
PUMP_ROWS, PUMP_MINUTES = 3360, 15
PUMP_SPIKE_ROW = 1500  # rows before the pressure surge
PUMP_STUCK_ROWS = (2100, 2140)  # rows between which the sensor repeats its value
PUMP_WEAR_ROWS = (2700, 3100)  # rows between which the impeller wears
BREAK = (213, 227)  # days of the year on which the plant stands still


class Draws:
    """Random numbers that are the same everywhere."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)

    def uniform(self, size: int, low: float = 0.0, high: float = 1.0) -> FloatArray:
        """Uniform on [low, high): the upper 53 bits of each word."""
        words = np.asarray(self._bits.random_raw(size), dtype=np.uint64) >> np.uint64(11)
        return low + (high - low) * (words.astype(np.float64) * 2.0**-53)

    def normal(self, size: int) -> FloatArray:
        """Standard normal by Box and Muller: sqrt(-2 log(1 - u)) cos(2 pi v)."""
        u, v = self.uniform(size), self.uniform(size)
        return np.sqrt(-2.0 * np.log1p(-u)) * np.cos(2.0 * np.pi * v)

    def order(self, size: int) -> IntArray:
        """A random permutation: the ranks of uniform numbers."""
        return np.argsort(self.uniform(size), kind="stable")


def cubic(rows: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """y = x^3 + e, e ~ N(0, 9), x uniform in [-4, 4]."""
    draws = Draws(seed)
    x = draws.uniform(rows, -4.0, 4.0)
    return x, x**3 + 3.0 * draws.normal(rows)


def moons(rows: int, seed: int, noise: float = 0.1, degrees: float = 0.0) -> Points:
    """Two half circles that reach into each other, classes mixed, turned about their centre.

    With t uniform in [0, pi], class 0 is (cos t, sin t) and class 1 is the same arc turned by
    half a circle about MOON_CENTRE: (1 - cos t, 1/2 - sin t). Normal noise on both coordinates.
    """
    draws = Draws(seed)
    label = _halves(rows, draws)
    t = draws.uniform(rows, 0.0, np.pi)
    arc = np.column_stack([np.cos(t), np.sin(t)])
    x = np.where(label[:, None] == 0, arc, 2.0 * np.asarray(MOON_CENTRE) - arc)
    return turn(x + noise * _plane(rows, draws), degrees), label


def circles(rows: int, seed: int, noise: float = 0.1) -> Points:
    """Class 0 on a circle of radius 1, class 1 on one of radius 1/2 inside it, classes mixed."""
    draws = Draws(seed)
    label = _halves(rows, draws)
    t = draws.uniform(rows, 0.0, 2.0 * np.pi)
    radius = np.where(label == 0, 1.0, 0.5)
    x = radius[:, None] * np.column_stack([np.cos(t), np.sin(t)])
    return x + noise * _plane(rows, draws), label


def turn(x: FloatArray, degrees: float) -> FloatArray:
    """Rotate points anticlockwise about the centre of the moons."""
    angle = np.deg2rad(degrees)
    c, s = np.cos(angle), np.sin(angle)
    turned: FloatArray = (x - MOON_CENTRE) @ np.array([[c, s], [-s, c]]) + MOON_CENTRE
    return turned


def rotating_moons(seed: int) -> Points:
    """1,500 rows as they stand, then 18 times 100 new rows, each turned by 20 degrees more."""
    parts = [moons(MOON_ROWS, seed)]
    for step in range(1, STEPS + 1):
        parts.append(moons(STEP_ROWS, seed + step, degrees=STEP_DEGREES * step))
    return np.concatenate([x for x, _ in parts]), np.concatenate([label for _, label in parts])


def sensors(rows: int, seed: int) -> dict[str, list[str]]:
    """A gas compressor station, a row every five minutes: columns of ready text.

    With pressure ratio p, inlet temperature T in kelvin and the valve's factor k,

        power = (150 + 75 load (T / 288) (p^0.23 - 1) k) (1 + f load / 100) + sd(load) e
        sd(load) = 4 + 0.003 load^2,    f = 0 before DRIFT_ROW and 0.12 after it (fouled filter).
    """
    draws = Draws(seed)
    day = 2.0 * np.pi * np.arange(rows) / ROWS_A_DAY
    load = np.clip(58.0 + 24.0 * np.sin(day) + 9.0 * _wander(rows, 0.97, draws), 15.0, 100.0)
    ambient = 12.0 + 7.0 * np.sin(day - 0.8) + 3.0 * _wander(rows, 0.995, draws)
    inlet_temp = 9.0 + 0.6 * ambient + 1.5 * _wander(rows, 0.9, draws)
    inlet_pressure = 42.0 - 0.03 * load + 1.2 * _wander(rows, 0.98, draws)
    outlet_pressure = 63.0 + 0.09 * load + 1.0 * _wander(rows, 0.95, draws)
    speed = 5200.0 + 46.0 * load + 70.0 * draws.normal(rows)
    valve = _valves(rows, draws)

    factors = {"open": 1.0, "throttled": 1.08, "bypass": 1.2, "recycle": 1.35, "purge": 0.8}
    factor = np.array([factors[name] for name in valve])
    ratio = outlet_pressure / inlet_pressure
    work = load * (inlet_temp + 273.15) / 288.0 * (ratio**0.23 - 1.0) * factor
    fouling = np.where(np.arange(rows) < DRIFT_ROW, 0.0, 0.12)
    power = (150.0 + 75.0 * work) * (1.0 + fouling * load / 100.0)
    power = power + sensor_noise_sd(load) * draws.normal(rows)

    features = {
        "load_pct": _text(load, 1),
        "speed_rpm": _text(speed, 0),
        "inlet_temp_c": _text(inlet_temp, 1),
        "inlet_pressure_bar": _text(inlet_pressure, 2),
        "outlet_pressure_bar": _text(outlet_pressure, 2),
        "ambient_c": _text(ambient, 1),
        "valve": valve,
    }
    gaps = {name: _with_gaps(cells, 0.03, draws) for name, cells in features.items()}
    return {**gaps, "power_kw": _text(power, 1)}


def load(seed: int) -> dict[str, list[str]]:
    """A plant's electric load, hour by hour through 2025, in kW.

    90 at rest and 260 more in two shifts, working days from 6 to 22 with a dip at noon, and on
    Saturday mornings; up to 70 of heating in winter, more at night; orders that drift, and noise.
    """
    draws = Draws(seed)
    hours = np.arange(LOAD_HOURS)
    hour, day = hours % 24, hours // 24
    weekday = (day + 2) % 7  # 2025 began on a Wednesday
    dip = 1.0 - 0.25 * np.exp(-((hour - 12.0) ** 2))
    shift = np.where((hour >= 6) & (hour < 22), dip, 0.0)
    shift = np.where(weekday == 5, np.where(hour < 13, shift, 0.0), shift)
    shift = np.where(weekday == 6, 0.0, shift)
    shift = np.where((day >= BREAK[0]) & (day < BREAK[1]), 0.0, shift)
    winter = 0.5 + 0.5 * np.cos(2.0 * np.pi * (day - 15) / 365.0)
    heating = 70.0 * winter * (0.75 + 0.25 * np.cos(2.0 * np.pi * (hour - 4) / 24.0))
    orders = 1.0 + 0.06 * _wander(LOAD_HOURS, 0.999, draws)
    kilowatts = 90.0 + 260.0 * shift * orders + heating + 5.0 * _wander(LOAD_HOURS, 0.8, draws)
    kilowatts += 4.0 * draws.normal(LOAD_HOURS)
    first = np.datetime64("2025-01-01T00:00", "m")
    when = [str(first + 60 * int(at)).replace("T", " ") for at in hours]
    return {"time": when, "load_kw": _text(kilowatts, 1)}


def pump(seed: int) -> dict[str, list[str]]:
    """A pump, quarter of an hour by quarter of an hour for five weeks: its pressure, in bar.

    The speed follows the demand of the day, the flow the speed. The pressure is 2 and 5 times the
    square of the speed, less 0.02 per m3/h, with noise of sd 0.04. Then three faults: a surge of
    one row, a sensor that repeats its value for ten hours, and wear, which costs 0.6 bar within
    four days.
    """
    draws = Draws(seed)
    rows = np.arange(PUMP_ROWS)
    hour = (rows % 96) / 4.0
    demand = (
        0.7
        + 0.2 * np.sin(2.0 * np.pi * (hour - 9.0) / 24.0)
        + 0.05 * _wander(PUMP_ROWS, 0.95, draws)
    )
    speed = 1450.0 * np.clip(demand, 0.3, 1.0)
    flow = 60.0 * speed / 1450.0 * (1.0 + 0.05 * _wander(PUMP_ROWS, 0.9, draws))
    pressure = 2.0 + 5.0 * (speed / 1450.0) ** 2 - 0.02 * flow + 0.04 * draws.normal(PUMP_ROWS)
    pressure[PUMP_SPIKE_ROW] += 3.0
    start, end = PUMP_STUCK_ROWS
    pressure[start:end] = pressure[start]
    pressure -= 0.6 * np.clip((rows - PUMP_WEAR_ROWS[0]) / np.diff(PUMP_WEAR_ROWS), 0.0, 1.0)
    return {
        "time": _pump_times(rows),
        "speed_rpm": _text(speed, 0),
        "flow_m3h": _text(flow, 2),
        "pressure_bar": _text(pressure, 3),
    }


def pump_events() -> dict[str, list[str]]:
    """When the faults of the pump were there; it stays worn to the end."""
    starts = np.array([PUMP_SPIKE_ROW, PUMP_STUCK_ROWS[0], PUMP_WEAR_ROWS[0]])
    ends = np.array([PUMP_SPIKE_ROW + 4, PUMP_STUCK_ROWS[1] - 1, PUMP_ROWS - 1])
    return {
        "start": _pump_times(starts),
        "end": _pump_times(ends),
        "what": ["surge", "stuck sensor", "wear"],
    }


def _pump_times(rows: IntArray) -> list[str]:
    first = np.datetime64("2026-03-02T00:00", "m")
    return [str(first + PUMP_MINUTES * int(row)).replace("T", " ") for row in rows]


def visits(seed: int) -> dict[str, list[str]]:
    """Visits to a shop, quarter of an hour by quarter of an hour: a negative binomial.

    log rate = 0.6 + 0.9 bump(hour) + 0.5 weekend - 0.12 rain + 0.02 (temp - 12) + 0.4 offer, and
    a gamma of shape 3 on it: days are alike on average only.
    """
    draws = Draws(seed)
    hour = np.floor(draws.uniform(VISIT_ROWS, 8.0, 20.0) * 4.0) / 4.0
    day = np.floor(draws.uniform(VISIT_ROWS, 0.0, 7.0)).astype(np.int64)
    rain = np.maximum(0.0, 3.0 * draws.normal(VISIT_ROWS) - 1.5)
    temp = 12.0 + 8.0 * draws.normal(VISIT_ROWS)
    offer = draws.uniform(VISIT_ROWS) < 0.2
    bump = np.exp(-(((hour - 12.5) / 1.5) ** 2)) + np.exp(-(((hour - 17.5) / 1.5) ** 2))
    log_rate = 0.6 + 0.9 * bump + 0.5 * (day >= 5) - 0.12 * rain + 0.02 * (temp - 12.0)
    rate = np.exp(log_rate + 0.4 * offer)
    rate *= -sum(np.log1p(-draws.uniform(VISIT_ROWS)) for _ in range(3)) / 3.0  # a gamma of shape 3
    count, passed = np.zeros(VISIT_ROWS), np.zeros(VISIT_ROWS)
    for _ in range(MOST_VISITS):  # arrivals until the time is up: a Poisson
        passed -= np.log1p(-draws.uniform(VISIT_ROWS))
        count += passed < rate
    days = np.array(["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"])
    return {
        "day": [str(name) for name in days[day]],
        "hour": _text(hour, 2),
        "temp_c": _text(temp, 1),
        "rain_mm": _text(rain, 1),
        "offer": ["true" if on else "false" for on in offer],
        "visits": _text(count, 0),
    }


def prices(seed: int) -> dict[str, list[str]]:
    """Second-hand cars: what was paid for them, in whole euros.

    log price = log(new) - 0.13 age - 0.25 (km / 100,000) + 0.25 e, with a tenth of the value more
    or less for the gearbox; new cars cost 120 to 450 euros a kilowatt, by make.
    """
    draws = Draws(seed)
    makes = {"Anta": 180.0, "Borel": 240.0, "Corva": 130.0, "Delmont": 420.0, "Eiko": 200.0}
    names = np.array(list(makes))[np.floor(draws.uniform(PRICE_ROWS, 0.0, 5.0)).astype(np.int64)]
    power = np.round(60.0 + 90.0 * draws.uniform(PRICE_ROWS) ** 2, 0)
    age = np.round(draws.uniform(PRICE_ROWS, 0.2, 18.0), 1)
    km = np.round(13_000.0 * age * np.exp(0.4 * draws.normal(PRICE_ROWS)), -2)
    automatic = draws.uniform(PRICE_ROWS) < 0.4
    new = np.array([makes[str(name)] for name in names]) * power
    log_price = np.log(new) - 0.13 * age - 0.25 * km / 1e5 + 0.1 * automatic
    price = np.exp(log_price + 0.25 * draws.normal(PRICE_ROWS))
    return {
        "make": [str(name) for name in names],
        "power_kw": _text(power, 0),
        "age_years": _text(age, 1),
        "km": _text(km, 0),
        "gearbox": ["automatic" if on else "manual" for on in automatic],
        "price_eur": _text(price, 0),
    }


def rain(seed: int) -> dict[str, list[str]]:
    """What fell in a day, in mm: nothing on most days, and else any amount.

    With h = humidity - 75, p = pressure - 1013 it rains with probability 1/(1 + e^-s),
    s = 0.08 h - 0.12 p + west, and then e^(1 + 0.02 h - 0.04 p + 0.03 (temp - 10)) times a gamma
    of shape 1: warm rain is heavy.
    """
    draws = Draws(seed)
    pressure = np.round(1013.0 + 8.0 * _wander(RAIN_DAYS, 0.8, draws), 1)
    humidity = np.round((72.0 + 12.0 * draws.normal(RAIN_DAYS)).clip(25.0, 100.0), 0)
    season = np.cos(2.0 * np.pi * (np.arange(RAIN_DAYS) - 200.0) / 365.25)
    temp = np.round(10.0 + 9.0 * season + 3.0 * draws.normal(RAIN_DAYS), 1)
    west = draws.uniform(RAIN_DAYS) < 0.45
    score = 0.08 * (humidity - 75.0) - 0.12 * (pressure - 1013.0) + west
    wet = draws.uniform(RAIN_DAYS) < 1.0 / (1.0 + np.exp(-score))
    much = 1.0 + 0.02 * (humidity - 75.0) - 0.04 * (pressure - 1013.0) + 0.03 * (temp - 10.0)
    amount: FloatArray = np.exp(much) * -np.log1p(-draws.uniform(RAIN_DAYS))
    fallen: FloatArray = np.where(wet, np.maximum(amount, 0.1), 0.0)
    return {
        "pressure_hpa": _text(pressure, 1),
        "humidity_pct": _text(humidity, 0),
        "temp_c": _text(temp, 1),
        "wind": ["west" if on else "east" for on in west],
        "rain_mm": _text(fallen, 1),
    }


def sensor_noise_sd(load: FloatArray) -> FloatArray:
    """The noise of the power reading in kW: 4.7 at a load of 15 %, 34 at full load."""
    sd: FloatArray = 4.0 + 0.003 * load**2
    return sd


def _halves(rows: int, draws: Draws) -> IntArray:
    """As many zeros as ones, in random order."""
    return (np.arange(rows, dtype=np.int64) % 2)[draws.order(rows)]


def _plane(rows: int, draws: Draws) -> FloatArray:
    return np.column_stack([draws.normal(rows), draws.normal(rows)])


def _wander(rows: int, memory: float, draws: Draws) -> FloatArray:
    """A stationary first-order process of variance 1: w' = memory w + sqrt(1 - memory^2) e."""
    steps = draws.normal(rows)
    steps[1:] *= np.sqrt(1.0 - memory**2)
    for row in range(1, rows):
        steps[row] += memory * steps[row - 1]
    return steps


def _valves(rows: int, draws: Draws) -> list[str]:
    """The valve keeps its place for 25 rows on average; a purge is possible from PURGE_ROW on."""
    change, pick = draws.uniform(rows) < 1.0 / 25.0, draws.uniform(rows)
    names: list[str] = []
    place = "open"
    for row in range(rows):
        shares = {"open": 0.55, "throttled": 0.25, "bypass": 0.12, "recycle": 0.08}
        if row >= PURGE_ROW:
            shares = {**shares, "open": 0.45, "purge": 0.10}
        if row == PURGE_ROW:
            place = "purge"
        elif change[row]:
            edges = np.cumsum(list(shares.values()))
            place = list(shares)[min(int(np.searchsorted(edges, pick[row])), len(shares) - 1)]
        names.append(place)
    return names


def _with_gaps(cells: list[str], share: float, draws: Draws) -> list[str]:
    """Lose a share of the cells: half of them empty, half of them "NA"."""
    empty, lost = (draws.uniform(len(cells)) < chance for chance in (0.5, share))
    gaps = np.where(empty, "", "NA")
    return [str(gap) if gone else cell for cell, gap, gone in zip(cells, gaps, lost, strict=True)]


def _text(values: FloatArray, decimals: int) -> list[str]:
    # Adding zero turns a rounded -0.0 into 0.0, so that no file says "-0.0".
    return [f"{value:.{decimals}f}" for value in np.round(values, decimals) + 0.0]


def _points(points: Points) -> dict[str, list[str]]:
    x, label = points
    return {"x1": _text(x[:, 0], 4), "x2": _text(x[:, 1], 4), "label": [str(c) for c in label]}


def _curve(xy: tuple[FloatArray, FloatArray]) -> dict[str, list[str]]:
    return {"x": _text(xy[0], 4), "y": _text(xy[1], 4)}


def _held_out(seed: int) -> NDArray[np.bool_]:
    """A thousand rows of the plant's second half, at random."""
    rows = SENSOR_ROWS + SENSOR_TEST_ROWS
    chosen = np.zeros(rows, dtype=np.bool_)
    chosen[DRIFT_ROW + Draws(seed).order(rows - DRIFT_ROW)[:SENSOR_TEST_ROWS]] = True
    return chosen


def _rows(table: dict[str, list[str]], chosen: NDArray[np.bool_]) -> dict[str, list[str]]:
    return {name: [cells[row] for row in np.flatnonzero(chosen)] for name, cells in table.items()}


def _csv(names: Iterable[str], columns: Sequence[Sequence[str]]) -> bytes:
    lines = [",".join(names), *(",".join(row) for row in zip(*columns, strict=True))]
    return ("\n".join(lines) + "\n").encode("ascii")


def files() -> dict[str, bytes]:
    """Every sample file by name."""
    plant, held_out = sensors(SENSOR_ROWS + SENSOR_TEST_ROWS, seed=60), _held_out(seed=61)
    tables = {
        "cubic.csv": _curve(cubic(800, seed=10)),
        "cubic_small.csv": _curve(cubic(40, seed=20)),
        "moons.csv": _points(moons(MOON_ROWS, seed=30)),
        "circles.csv": _points(circles(MOON_ROWS, seed=40)),
        "rotating_moons.csv": _points(rotating_moons(seed=100)),
        "sensors.csv": _rows(plant, ~held_out),
        "sensors_test.csv": _rows(plant, held_out),
        "load.csv": load(seed=70),
        "visits.csv": visits(seed=80),
        "prices.csv": prices(seed=90),
        "rain.csv": rain(seed=110),
        "pump.csv": pump(seed=120),
        "pump_events.csv": pump_events(),
    }
    return {name: _csv(table, list(table.values())) for name, table in tables.items()}


def main(arguments: Sequence[str]) -> None:
    """Write all files into the folder named, or beside this script."""
    folder = Path(arguments[0]) if arguments else Path(__file__).parent
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files().items():
        (folder / name).write_bytes(content)
        print(f"{folder / name}: {len(content):,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
