"""Tests of kbnn.workflows."""
