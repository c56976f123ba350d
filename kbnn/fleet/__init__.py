"""A model for every key: rows find their model by what stands in the columns of the key."""
