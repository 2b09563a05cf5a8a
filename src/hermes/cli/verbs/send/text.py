"""Where the text of a message comes from: the command line, a file, or what is piped in."""

from argparse import Namespace
from pathlib import Path
from typing import TextIO

from hermes.cli.context import CliContext
from hermes.cli.verbs.chat import as_text
from hermes.kit.files import read_ordinary
from hermes.schema.errors import UsageError

LONGEST = 1024 * 1024
"""Bytes of one message; platforms take far less, and it is cut for them."""


def text_to_send(args: Namespace, context: CliContext) -> str:
    """Raises `UsageError` when there is none, or two."""
    if args.message is not None and args.file is not None:
        raise UsageError("Give the message on the command line or in a file, not both.")
    if args.message is not None:
        text = as_text(args.message)
    elif args.file not in (None, "-"):
        text = _from_file(Path(args.file))
    elif args.file == "-" or not context.stdin.isatty():
        text = _piped(context.stdin)
    else:
        raise _nothing("There is nothing to send.")
    if not text.strip():
        raise _nothing("The message is empty.")
    subject = " ".join(as_text(args.subject or "").split())
    return f"{subject}\n\n{text}" if subject else text


def _from_file(path: Path) -> str:
    try:
        return _decoded(read_ordinary(path, LONGEST), str(path))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def _piped(stream: TextIO) -> str:
    data = stream.buffer.read(LONGEST + 1) if hasattr(stream, "buffer") else stream.read().encode()
    if len(data) > LONGEST:
        raise UsageError(f"The message is longer than {LONGEST:,} bytes.")
    return _decoded(data, "What is piped in")


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode().rstrip("\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text.", hint="Only text can be sent.") from error


def _nothing(what: str) -> UsageError:
    return UsageError(
        what, hint="For example: echo done | hermes send -t local; where else: hermes send --list"
    )
