"""What a screen is made of, one kind of thing per module."""
