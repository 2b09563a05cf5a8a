"""Looking back after a turn: what of it is worth remembering."""
