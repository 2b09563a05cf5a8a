"""Where processes run, and the one door through which they are started."""
