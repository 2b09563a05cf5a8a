"""One module per verb: `add_arguments(parser)` and `run(args, context) -> exit code`."""
