"""Load plugins and keep what they register."""
