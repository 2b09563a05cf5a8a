"""`hermes completion`: a script that lets a shell finish the words of this command line."""

from argparse import SUPPRESS, ArgumentParser, Namespace, RawDescriptionHelpFormatter

from hermes.cli.context import CliContext
from hermes.schema.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
KINDS = ("provider", "toolset", "setting")
"""Names that the program itself knows."""

_HOW = """\
To use it once and from now on:
  bash   eval "$(hermes completion bash)"            add this line to ~/.bashrc
  zsh    eval "$(hermes completion zsh)"             add it to ~/.zshrc, after compinit
  fish   hermes completion fish | source             add it to ~/.config/fish/config.fish"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _HOW
    parser.add_argument("shell", nargs="?", choices=SHELLS, help="which shell it is for")
    parser.add_argument("--sessions", metavar="BEGINNING", help=SUPPRESS)
    parser.add_argument("--names", choices=KINDS, help=SUPPRESS)


def run(args: Namespace, context: CliContext) -> int:
    if args.sessions is not None:
        from hermes.cli.verbs.completion.names import offer_sessions

        return offer_sessions(args.sessions, context)
    if args.names is not None:
        from hermes.cli.verbs.completion.known import known

        context.stdout.writelines(f"{name}\n" for name in known(args.names))
        return 0
    if args.shell is None:
        raise UsageError("Say which shell: bash, zsh or fish.", hint=_HOW)
    from hermes.cli.verbs.completion.scripts import script

    context.stdout.write(script(args.shell))
    return 0
