"""Tests of kbnn.model."""
