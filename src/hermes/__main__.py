"""`python -m hermes` is the same as `hermes`."""

from hermes.cli.main import main

raise SystemExit(main())
