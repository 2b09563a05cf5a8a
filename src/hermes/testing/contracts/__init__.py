"""What every driver of a port must do, as suites that plugin authors can run too."""
