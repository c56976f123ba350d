"""Fleets: one model per key, chosen for each row by its key columns."""
