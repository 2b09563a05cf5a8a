"""`hermes cron`: schedule jobs."""

from hermes.cli.feature_verb import run_feature

run = run_feature("cron")
