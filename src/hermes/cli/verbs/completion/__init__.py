"""`hermes completion`: print shell completion scripts and the names they complete."""

from argparse import SUPPRESS, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable

from hermes.cli.context import CliContext
from hermes.schema.errors import UsageError

SHELLS = ("bash", "zsh", "fish")
NAME_KINDS = ("provider", "toolset", "setting")
"""Kinds of names that are completed without reading the home."""

_INSTALL_HELP = """\
To enable it, add this line to your shell's configuration:
  bash   eval "$(hermes completion bash)"            in ~/.bashrc
  zsh    eval "$(hermes completion zsh)"             in ~/.zshrc, after compinit
  fish   hermes completion fish | source             in ~/.config/fish/config.fish"""


def add_arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _INSTALL_HELP
    parser.add_argument("shell", nargs="?", choices=SHELLS, help="shell to print the script for")
    parser.add_argument("--sessions", metavar="BEGINNING", help=SUPPRESS)
    parser.add_argument("--names", choices=NAME_KINDS, help=SUPPRESS)


def run(args: Namespace, context: CliContext) -> int:
    if args.sessions is not None:
        from hermes.cli.verbs.completion.session_names import print_sessions

        return print_sessions(args.sessions, context)
    if args.names is not None:
        context.stdout.writelines(f"{name}\n" for name in known_names(args.names))
        return 0
    if args.shell is None:
        raise UsageError("Choose a shell: bash, zsh or fish.", hint=_INSTALL_HELP)
    from hermes.cli.verbs.completion.scripts import script

    context.stdout.write(script(args.shell))
    return 0


def known_names(kind: str) -> Iterable[str]:
    """All names of a kind; settings without effect are omitted."""
    match kind:
        case "provider":
            from hermes.models.providers import CUSTOM, PROVIDERS

            return [one.name for one in (*PROVIDERS, CUSTOM)]
        case "toolset":
            from hermes.tools.toolsets import known_toolsets

            return known_toolsets()
        case _:
            from hermes.config.setting_warnings import setting_names, unused_names

            return sorted(frozenset(setting_names()) - unused_names())
