"""Run the fake server as a process; the first line it prints is its URL."""

import argparse
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import anyio
import msgspec

from hermes.testing.fake_openai.script import Reply, Script, load_script
from hermes.testing.fake_openai.server import RecordedRequest, serve


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hermes.testing.fake_openai")
    parser.add_argument("--port", type=int, default=0, help="port to listen on; 0 picks a free one")
    parser.add_argument(
        "--log", type=Path, help="append every request to this file as a line of JSON"
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--script", type=Path, help="JSON file with a script")
    source.add_argument("--reply", help="answer every request with this text")
    args = parser.parse_args()
    try:
        script = load_script(args.script) if args.script else Script()
    except (OSError, msgspec.DecodeError) as error:
        parser.error(f"{args.script}: {error}")
    if args.reply is not None:
        script.default = Reply(text=args.reply)
    with _log(args.log) as log:
        anyio.run(_serve_until_signal, script, args.port, log)


class RequestLog:
    """Writes each request to a file before it is answered."""

    def __init__(self, file: BinaryIO | None) -> None:
        self._file = file

    def __call__(self, exchange: RecordedRequest) -> None:
        if self._file is None:
            return
        entry = {
            "path": exchange.path,
            "headers": exchange.headers,
            "body": exchange.body.decode("utf-8", "replace"),
        }
        self._file.write(msgspec.json.encode(entry) + b"\n")
        self._file.flush()


@contextmanager
def _log(path: Path | None) -> Generator[RequestLog]:
    if path is None:
        yield RequestLog(None)
        return
    with path.open("ab") as file:
        yield RequestLog(file)


async def _serve_until_signal(script: Script, port: int, log: RequestLog) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with serve(script, port=port, on_request=log) as server:
            sys.stdout.write(server.url + "\n")
            sys.stdout.flush()
            async for _ in signals:
                return


if __name__ == "__main__":
    main()
