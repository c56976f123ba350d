"""Tests of kbnn.data."""
