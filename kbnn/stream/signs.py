"""What may stand with a number: currencies, units, and what is written where there is none."""

from __future__ import annotations

from typing import Final

_CURRENCIES: Final = """
$ € £ ¥ ₹ ₽ ₩ ₺ ₪ ฿ ¢ US$ A$ C$ R$ EUR USD GBP CHF JPY CNY INR SEK NOK DKK PLN CZK HUF kr Kč zł
Fr. Rs Rs.
"""
_UNITS: Final = """
% ‰ ° km cm mm µm nm mi ft yd kg mg lb lbs oz ml mL cl gal ms sec min hr hrs days kW MW Wh kWh MWh
mV kV mA Hz kHz MHz GHz °C °F Pa hPa kPa bar mbar psi km/h kmh mph m/s kn kB KB MB GB TB px pt dB
rpm hp PS cc ppm m² m2 m³ km² ha sqft
"""
_GAP_SPELLINGS: Final = """
? ?? - -- --- \u2013 \u2014 * ** _ n.a. n.a n.d. n/d n/k nd k.a. missing unknown unbekannt tbd
"""

CURRENCIES: Final = frozenset(_CURRENCIES.split())
UNITS: Final = frozenset(_UNITS.split())
SPACED_UNITS: Final = frozenset(
    ["m", "g", "t", "l", "L", "s", "h", "d", "W", "V", "A", "K", "J", "N"]
)
"""Units that are told from a mere letter by the space before them."""
GAP_SPELLINGS: Final = frozenset(_GAP_SPELLINGS.split())
"""In lower case."""
