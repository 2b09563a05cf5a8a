"""One module or package per command, with `add_arguments(parser)` and `run(args, context)`."""
