"""Settings: find the home, load its files and edit them."""
