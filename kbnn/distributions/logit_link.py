"""Shares y between 0 and 1: the network learns z = log(y/(1 - y)).

The linked value z has the mixture of kbnn.distributions.normal_mixture. Values closer to 0 or 1
than an edge e are learned as e or 1 - e, so that exact 0 and 1 are learned too, and are scored by
the average density between the edge and 0 or 1: log (P(Y <= e)/e). The edge is a tenth of the
smallest distance from 0 and 1 among the first targets between them.

The CRPS is the integral of (F(z) - 1[z > z_y])^2 y (1 - y) over z, by Gauss-Legendre quadrature
between points chosen at every scale of the integrand.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from kbnn.array_types import BoolArray, FloatArray
from kbnn.core import normal
from kbnn.distributions.normal_mixture import LinkedMixture, log_between, log_pdf
from kbnn.distributions.predictive import PARAM, RowScores

EDGE_SHARE: Final = 0.1
"""The edge, as a share of the smallest distance from 0 and 1 among the first targets."""
DEFAULT_EDGE: Final = 0.001
"""The edge if no first target is between 0 and 1."""
MIN_EDGE: Final = 1e-9
_LINK_EDGES: Final = np.array([-36.0, -22.0, -15.0, -10.0, -6.0, -3.0, 0.0])
"""Quadrature edges of the link, and the same above 0: between them its slope is smooth."""
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_NORMAL_NODES, _NORMAL_WEIGHTS = np.polynomial.hermite_e.hermegauss(64)
_NODE_SHARES: Final = _NORMAL_WEIGHTS / np.sum(_NORMAL_WEIGHTS)
_BATCH_ROWS: Final = 256
"""Rows that are integrated at a time."""


def read_edge(unit: FloatArray) -> FloatArray:
    """Return the edge that the field `unit` holds."""
    return np.where(unit > 0.0, unit, DEFAULT_EDGE)


class LogitLink(LinkedMixture):
    """Numbers between 0 and 1."""

    code = 4

    @staticmethod
    def is_possible(y: FloatArray) -> BoolArray:
        """Return whether values are from 0 to 1."""
        return np.asarray((y >= 0.0) & (y <= 1.0))

    def nearest_possible(self, y: FloatArray) -> FloatArray:
        """Return y, at least 0 and at most 1."""
        return np.clip(y, 0.0, 1.0)

    @staticmethod
    def choose_link_unit(y: FloatArray) -> float:
        """Choose the edge from the first targets."""
        inside = y[(y > 0.0) & (y < 1.0)]
        if not inside.size:
            return DEFAULT_EDGE
        return max(EDGE_SHARE * float(np.min(np.minimum(inside, 1.0 - inside))), MIN_EDGE)

    @staticmethod
    def apply_link(y: FloatArray, unit: FloatArray) -> FloatArray:
        """Return z of values from 0 to 1; inf for other values, NaN for NaN."""
        edge = read_edge(unit)
        p = np.clip(y, edge, 1.0 - edge)
        return np.where(np.isnan(y) | LogitLink.is_possible(y), np.log(p) - np.log1p(-p), np.inf)

    @staticmethod
    def apply_inverse_link(z: FloatArray, unit: FloatArray) -> FloatArray:
        """Return y of linked values."""
        small = np.exp(-np.abs(z))
        return np.where(z < 0.0, small, 1.0) / (1.0 + small)

    @staticmethod
    def log_slope(y: FloatArray, unit: FloatArray) -> FloatArray:
        """Return log dy/dz = log y (1 - y)."""
        edge = read_edge(unit)
        p = np.clip(y, edge, 1.0 - edge)
        return np.asarray(np.log(p) + np.log1p(-p))

    def cdf(self, y: FloatArray) -> FloatArray:
        """Return P(Y <= y) for values (..., n)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.log(y) - np.log1p(-y)
            inside = super(LinkedMixture, self).cdf(z)
        return np.where(y <= 0.0, 0.0, np.where(y >= 1.0, 1.0, inside))

    def mean_and_sd(self) -> tuple[FloatArray, FloatArray]:
        """Return mean and sd without outliers."""
        place, spread = self.rows[..., PARAM.place, None], self.rows[..., PARAM.spread, None]
        y = self.apply_inverse_link(place + spread * _NORMAL_NODES, spread)
        mean = np.sum(y * _NODE_SHARES, axis=-1)
        return mean, np.sqrt(np.sum((y - mean[..., None]) ** 2 * _NODE_SHARES, axis=-1))

    def score_values(self, y: FloatArray) -> RowScores:
        """Score values against their predictive distributions."""
        return super().score_values(y)._replace(nll=-self.log_density(y))

    def log_density(self, y: FloatArray, zero_bin_width: float = 1.0) -> FloatArray:
        """Return the log density of values; beyond an edge, the average density there."""
        unit = self.rows[:, PARAM.unit]
        edge, z = read_edge(unit), self.apply_link(y, unit)
        fine = log_pdf(z, self.rows) - self.log_slope(y, unit)
        far = np.full(len(y), np.inf)
        below = log_between(-far, z, self.rows) - np.log(edge)
        above = log_between(z, far, self.rows) - np.log(edge)
        return np.where(y < edge, below, np.where(y > 1.0 - edge, above, fine))

    def crps(self, y: FloatArray) -> FloatArray:
        """Return the continuous ranked probability score."""
        found = np.empty(len(y))
        for start in range(0, len(y), _BATCH_ROWS):
            at = slice(start, start + _BATCH_ROWS)
            found[at] = _integrate_crps(y[at], LogitLink(self.rows[at]))
        return found


def _integrate_crps(y: FloatArray, told: LogitLink) -> FloatArray:
    with np.errstate(divide="ignore"):
        value = np.log(y) - np.log1p(-y)
    limit = -_LINK_EDGES[0]
    points = [super(LinkedMixture, told).quadrature_points().T, value[:, None]]
    points += [np.tile(side * _LINK_EDGES, (len(y), 1)) for side in (1.0, -1.0)]
    edges = np.sort(np.clip(np.concatenate(points, axis=1), -limit, limit), axis=1)
    half = 0.5 * np.diff(edges, axis=1)
    z = (edges[:, :-1] + half)[..., None] + half[..., None] * _NODES
    z = np.moveaxis(z, 0, -1)  # (panels, nodes, n)
    place, spread, share, ratio, shift = told.rows[:, : PARAM.gain].T
    turned = np.where(z < value, 1.0, -1.0)  # the side on which the square is small
    t = (z - place) / spread
    tail = (1.0 - share) * normal.cdf(turned * t)
    tail += share * normal.cdf(turned * (t - shift) / np.sqrt(ratio))
    small = np.exp(-np.abs(z))
    square = tail**2 * small / (1.0 + small) ** 2
    inner = np.sum(np.ascontiguousarray(np.moveaxis(square, -1, 0)) * _WEIGHTS, axis=2)
    return np.asarray(np.sum(inner * half, axis=1))
