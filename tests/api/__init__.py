"""Tests of kbnn.api."""
