"""Sample data for kbnn, and the experiments of its paper."""
