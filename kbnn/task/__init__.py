"""What a target is."""
