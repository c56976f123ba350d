"""The online model in the user's units: scaling, replay, selection, learning, record and file."""
