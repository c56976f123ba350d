"""Tests of kbnn.output."""
