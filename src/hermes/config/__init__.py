"""Settings: where the home is, what its files say, and how they are changed."""
