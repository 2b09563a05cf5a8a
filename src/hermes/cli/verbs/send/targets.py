"""`hermes send --list`: home channels, known chats and the local file, written as targets."""

from argparse import Namespace

import msgspec

from hermes.app.send_targets import load_send_targets
from hermes.app.service.status import gateway_status
from hermes.cli.context import CliContext
from hermes.cli.output import Printer
from hermes.kit.terminal_text import single_line
from hermes.schema.scope import Address


def list_targets(args: Namespace, context: CliContext) -> int:
    home = context.home()
    standing = gateway_status(home)
    online = list(standing.platforms) if standing.record else []
    places = load_send_targets(home, context.env, online)
    rows = [(name, target_text(address), "home channel") for name, address in places.homes.items()]
    rows += [
        (
            chat.platform,
            f"{chat.platform}:{chat.id}",
            " ".join(filter(None, [chat.type, chat.name])),
        )
        for chat in places.chats
    ]
    found = bool(rows)
    rows.append(("local", "local", "a file in the home, for nobody else"))
    if args.json:
        data = [{"target": target, "about": about} for _, target, about in rows]
        context.stdout.write(msgspec.json.encode(data).decode() + "\n")
        return 0
    if not found:
        context.stderr.write(
            "No home channel is set and no chat is known yet. Write `/sethome` in a chat with the "
            "agent, or name a chat as platform:chat.\n"
        )
    table = [
        ("TARGET", "ABOUT"),
        *((single_line(target), single_line(about)) for _, target, about in rows),
    ]
    Printer(context).table(table)
    return 0


def target_text(address: Address) -> str:
    thread = f":{address.thread}" if address.thread else ""
    return f"{address.channel}:{address.chat}{thread}"
