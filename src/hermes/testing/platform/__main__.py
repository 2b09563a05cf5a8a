"""The platform by hand: serve it in one terminal, be a person in a chat of it in others.

python -m hermes.testing.platform --serve --port 8799
python -m hermes.testing.platform --gateway --port 8799 --folder some/empty/folder
python -m hermes.testing.platform --chat kitchen --as ann --port 8799
"""

import argparse
import sys
from pathlib import Path

import aiohttp
import anyio
import anyio.to_thread
import msgspec

from hermes.testing.gateway_process import CrashPlan, run_gateway_spec, single_profile_spec
from hermes.testing.platform.faults import NO_FAULTS, SOME_FAULTS
from hermes.testing.platform.server import LOOPBACK, WriteRequest, serve_platform
from hermes.testing.platform.state import ChatEntry

POLL_SECONDS = 20.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hermes.testing.platform")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--serve", action="store_true", help="be the platform")
    what.add_argument(
        "--gateway", action="store_true", help="run the gateway, with the platform's mind"
    )
    what.add_argument("--chat", help="be a person in this chat")
    parser.add_argument("--as", dest="person", default="ann", help="who writes")
    parser.add_argument("--account", default="main", help="whom people write to")
    parser.add_argument("--port", type=int, default=8799)
    parser.add_argument("--folder", type=Path, help="where the gateway keeps its state")
    parser.add_argument("--rough", action="store_true", help="misbehave as platforms do")
    args = parser.parse_args()
    url = f"http://{LOOPBACK}:{args.port}"
    try:
        if args.serve:
            anyio.run(_serve, args.port, args.rough)
        elif args.gateway:
            if args.folder is None:
                parser.error("--gateway needs a --folder of its own")
            run_gateway_spec(
                single_profile_spec(args.folder.resolve(), url, args.account),
                CrashPlan("", 1, armed=False),
            )
        else:
            anyio.run(_chat, url, f"/{args.account}/chats/{args.chat}", args.person)
    except aiohttp.ClientConnectorError:
        sys.exit(f"There is no platform at {url}; start one with --serve.")
    except KeyboardInterrupt:
        return


async def _serve(port: int, rough: bool) -> None:
    async with serve_platform(SOME_FAULTS if rough else NO_FAULTS, port=port) as server:
        _print_line(f"The platform is at {server.url}. End it with Ctrl+C.")
        await anyio.sleep_forever()


async def _chat(url: str, chat: str, person: str) -> None:
    """Shows what happens in the chat, and writes what is typed, until the input ends."""
    async with aiohttp.ClientSession(url) as session:
        first = await _lines(session, chat, 0, 0.0)
        for line in first:
            _show(line, "")
        async with anyio.create_task_group() as group:
            group.start_soon(_follow, session, chat, person, len(first))
            while text := await anyio.to_thread.run_sync(_read_line, abandon_on_cancel=True):
                written = msgspec.json.encode(WriteRequest(person, text.strip()))
                async with session.post(chat, data=written) as response:
                    response.raise_for_status()
            group.cancel_scope.cancel()


def _read_line() -> str:
    """The next line that says something; empty at the end of the input."""
    return next((line for line in sys.stdin if line.strip()), "")


async def _follow(session: aiohttp.ClientSession, chat: str, person: str, seen: int) -> None:
    while True:
        try:
            lines = await _lines(session, chat, seen, POLL_SECONDS)
        except aiohttp.ClientError:
            _print_line("The platform is gone.")
            return
        for line in lines:
            _show(line, person)
        seen += len(lines)


async def _lines(
    session: aiohttp.ClientSession, chat: str, after: int, wait: float
) -> list[ChatEntry]:
    query = {"after": str(after), "wait": str(wait)}
    async with session.get(chat, params=query) as response:
        response.raise_for_status()
        return msgspec.json.decode(await response.read(), type=list[ChatEntry])


def _show(line: ChatEntry, person: str) -> None:
    """What the person typed stands on the screen already."""
    if line.who != person:
        _print_line(f"{line.who}{' (edited)' if line.edited else ''}: {line.text}")


def _print_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
