"""Tests of documents, samples and packaging."""
