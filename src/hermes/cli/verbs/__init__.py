"""One module or package per command: `add_arguments(parser)` and `run(args, context) -> exit code`."""
