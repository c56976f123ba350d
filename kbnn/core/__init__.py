"""One row of mathematics in standardised units."""
