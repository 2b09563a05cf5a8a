"""Contract test suites for the ports, for our own drivers and for plugins."""
