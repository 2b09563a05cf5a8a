"""Start, watch, report and end background processes."""
