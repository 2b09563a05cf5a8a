"""Read, write and patch files, without surprises for the next reader."""
