"""Plain data types and errors."""
