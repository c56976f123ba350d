"""Shares: numbers between 0 and 1, learned through the link of kbnn.distributions.logit_link."""

from __future__ import annotations

from kbnn.distributions.logit_link import LogitLink
from kbnn.targets.positive import LinkedTarget


class Share(LinkedTarget):
    """Numbers between 0 and 1: rates, fill levels, probabilities."""

    name = "share"
    title = "share"
    value_description = "numbers from 0 to 1"
    distribution = LogitLink
