"""Tests of kbnn.distributions."""
