"""Tests of kbnn.targets."""
