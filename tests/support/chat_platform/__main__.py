"""Try the fake platform by hand: serve it in one terminal and chat in others.

python -m support.chat_platform --serve --port 8799
python -m support.chat_platform --gateway --port 8799 --folder some/empty/folder
python -m support.chat_platform --chat kitchen --as ann --port 8799
"""

import argparse
import sys
from pathlib import Path

import aiohttp
import anyio
import anyio.to_thread
import msgspec

from support.chat_platform.server import LOOPBACK, WriteRequest, serve_platform
from support.chat_platform.state import NO_FAULTS, SOME_FAULTS, ChatEntry
from support.gateway_process import CrashPlan, run_gateway_spec, single_profile_spec

POLL_SECONDS = 20.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m support.chat_platform")
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--serve", action="store_true", help="serve the platform")
    mode.add_argument(
        "--gateway", action="store_true", help="run a gateway that uses the platform and its model"
    )
    mode.add_argument("--chat", help="join this chat as a person")
    parser.add_argument("--as", dest="person", default="ann", help="id of the person who writes")
    parser.add_argument("--account", default="main", help="account of the gateway")
    parser.add_argument("--port", type=int, default=8799)
    parser.add_argument("--folder", type=Path, help="folder for the state of the gateway")
    parser.add_argument("--rough", action="store_true", help="simulate faults of real platforms")
    args = parser.parse_args()
    url = f"http://{LOOPBACK}:{args.port}"
    try:
        if args.serve:
            anyio.run(_serve, args.port, args.rough)
        elif args.gateway:
            if args.folder is None:
                parser.error("--gateway requires --folder")
            run_gateway_spec(
                single_profile_spec(args.folder.resolve(), url, args.account),
                CrashPlan("", 1, armed=False),
            )
        else:
            anyio.run(_chat, url, f"/{args.account}/chats/{args.chat}", args.person)
    except aiohttp.ClientConnectorError:
        sys.exit(f"No platform at {url}. Start one with --serve.")
    except KeyboardInterrupt:
        return


async def _serve(port: int, rough: bool) -> None:
    async with serve_platform(SOME_FAULTS if rough else NO_FAULTS, port=port) as server:
        _print_line(f"Platform running at {server.url}. Press Ctrl+C to stop.")
        await anyio.sleep_forever()


async def _chat(url: str, chat: str, person: str) -> None:
    """Show new entries of the chat and send typed lines, until the input ends."""
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
    """Return the next non-blank line, or an empty string at the end of the input."""
    return next((line for line in sys.stdin if line.strip()), "")


async def _follow(session: aiohttp.ClientSession, chat: str, person: str, seen: int) -> None:
    while True:
        try:
            lines = await _lines(session, chat, seen, POLL_SECONDS)
        except aiohttp.ClientError:
            _print_line("Connection to the platform lost.")
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
    """Print an entry, except what this person has typed."""
    if line.who != person:
        _print_line(f"{line.who}{' (edited)' if line.edited else ''}: {line.text}")


def _print_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
