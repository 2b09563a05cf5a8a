"""Reviews after a turn: decide what is worth remembering."""
