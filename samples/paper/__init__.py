"""The experiments of the paper, one runnable script each, with its numbers beside ours."""
