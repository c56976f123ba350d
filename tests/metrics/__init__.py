"""Tests of kbnn.metrics."""
