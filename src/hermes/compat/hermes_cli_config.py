"""`hermes_cli.config`: the registry of environment variables."""

from hermes.config.variables import as_optional_env_vars

OPTIONAL_ENV_VARS = as_optional_env_vars()
