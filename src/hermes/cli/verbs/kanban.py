"""`hermes kanban`: boards of tasks."""

from hermes.cli.feature_verb import run_feature

run = run_feature("kanban")
