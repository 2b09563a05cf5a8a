"""`hermes send --list`: list home channels and known chats as targets."""

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
    gateway = gateway_status(home)
    online = list(gateway.platforms) if gateway.record else []
    targets = load_send_targets(home, context.env, online)
    rows = [(name, target_text(address), "home channel") for name, address in targets.homes.items()]
    rows += [
        (
            chat.platform,
            f"{chat.platform}:{chat.id}",
            " ".join(filter(None, [chat.type, chat.name])),
        )
        for chat in targets.chats
    ]
    found = bool(rows)
    rows.append(("local", "local", "a file in the home"))
    if args.json:
        data = [{"target": target, "about": about} for _, target, about in rows]
        context.stdout.write(msgspec.json.encode(data).decode() + "\n")
        return 0
    if not found:
        context.stderr.write(
            "No home channel and no known chats yet. Send `/sethome` in a chat with the agent, or "
            "use platform:chat.\n"
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
