"""A long conversation made to fit: what to keep, what to tell in short, and how it is shown."""
