"""Sessions: whose they are, who runs them, and how each of their turns becomes durable."""
