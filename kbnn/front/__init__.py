"""The front door for Python: models as a person uses them."""
