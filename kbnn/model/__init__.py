"""Rows in the user's units: scale, schema, networks, record, file."""
