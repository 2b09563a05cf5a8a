"""The arguments of every command, separate from their code, which parsing does not load."""

from importlib import import_module

from hermes.cli.main import VERBS
from hermes.cli.parser import Parser

_GROUPS = {
    "agent": "chat setup model auth config profile status doctor logs completion",
    "extensions": "memory skills bundles tools mcp hooks",
    "gateway": "gateway dashboard send pairing people webhook slack",
    "sessions": "sessions",
    "features": "cron kanban",
}
GROUP_OF_VERB = {verb: group for group, verbs in _GROUPS.items() for verb in verbs.split()}
"""The module with a command's arguments; only that one is loaded."""


def build_parser(verb: str) -> Parser:
    parser = Parser(prog=f"hermes {verb}", description=VERBS[verb])
    import_module(f"{__name__}.{GROUP_OF_VERB[verb]}").ARGUMENTS[verb](parser)
    return parser
