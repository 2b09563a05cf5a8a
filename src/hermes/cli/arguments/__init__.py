"""The arguments of every command, apart from the commands: parsing loads none of them."""

from hermes.cli.arguments import agent, extensions, gateway, sessions
from hermes.cli.main import VERBS
from hermes.cli.parser import Parser

ARGUMENTS = {
    **agent.ARGUMENTS,
    **extensions.ARGUMENTS,
    **gateway.ARGUMENTS,
    **sessions.ARGUMENTS,
}


def build_parser(verb: str) -> Parser:
    parser = Parser(prog=f"hermes {verb}", description=VERBS[verb])
    ARGUMENTS[verb](parser)
    return parser
