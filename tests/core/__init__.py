"""Tests of kbnn.core."""
