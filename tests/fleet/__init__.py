"""Tests of kbnn.fleet."""
