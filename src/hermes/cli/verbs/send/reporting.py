"""Tell what became of each copy of a message: to people, to programs, by the exit code."""

from argparse import Namespace
from collections.abc import Sequence
from enum import StrEnum

import msgspec
from msgspec import Struct

from hermes.cli.context import CliContext
from hermes.cli.export.plain import flat


class Outcome(StrEnum):
    """Accepted: it is in the outbox, and a gateway will bring it."""

    DELIVERED = "delivered"
    ACCEPTED = "accepted"
    WRITTEN = "written"
    FAILED = "failed"


class Line(Struct, frozen=True):
    target: str
    outcome: Outcome
    about: str = ""
    key: str = ""


def report(lines: Sequence[Line], args: Namespace, context: CliContext) -> int:
    failed = any(line.outcome is Outcome.FAILED for line in lines)
    if args.json:
        data = {"ok": not failed, "results": lines}
        context.stdout.write(msgspec.json.encode(data).decode() + "\n")
        return int(failed)
    for line in lines:
        text = f"{flat(line.target)}: {line.outcome.value}"
        text += f" ({flat(line.about)})" if line.about else ""
        if line.outcome is Outcome.FAILED:
            context.stderr.write(f"hermes: {text}\n")
        elif not args.quiet:
            context.stdout.write(f"{text}\n")
    return int(failed)
