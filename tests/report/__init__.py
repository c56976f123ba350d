"""Tests of kbnn.report."""
