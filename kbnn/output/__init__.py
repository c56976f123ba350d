"""Forecasts to files."""
