"""What the commands do, without a word printed: train, predict, evaluate, inspect."""
