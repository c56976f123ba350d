"""From bytes to blocks of rows: `kbnn.stream.opening.open_stream` is the way in."""
