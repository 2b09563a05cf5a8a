"""The settings as people may read them: what differs from the defaults, with nothing secret."""

from hermes.config.differing import differing
from hermes.config.effective import load_effective
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.masking import masked, secrets_in
from hermes.config.variables import secret_values
from hermes.kit.redact import Redactor


def shown_settings(home: Home, env: Env, *, everything: bool = False) -> object:
    settings = load_effective(home, env)
    redactor = Redactor([*secret_values(env), *secrets_in(settings)])
    return masked(settings if everything else differing(settings), redactor)


def as_yaml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    import yaml  # noqa: PLC0415 - most of what is shown is one word

    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=False)
    return text.removesuffix("...\n").rstrip("\n")
