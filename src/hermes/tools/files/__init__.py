"""Read, write and patch files."""
