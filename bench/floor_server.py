"""The least a durable streaming turn can cost: no agent, one commit before and after the answer.

`python -m bench.floor_server MODEL_URL DATABASE` prints its port, and exits when standard input is
closed. It stores the message, forwards the request, parses and passes on each token, and stores
the answer; both commits are synced and indexed for search.
"""

import asyncio
import queue
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from typing import TypeAlias

import aiohttp
import apsw
import msgspec
from aiohttp import web
from msgspec import Struct

_MAX_BATCH = 512
_SYSTEM = {"role": "system", "content": "x" * 4000}
_SCHEMA = """
pragma journal_mode = wal;
pragma synchronous = full;
create table if not exists messages(id integer primary key, session text, role text, body text,
                                    at real);
create virtual table if not exists search using fts5(body, content = '');
"""
_EVENT = b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,%b}]}\n\n'
_LAST = _EVENT % b'"delta":{},"finish_reason":"stop"' + b"data: [DONE]\n\n"

Row: TypeAlias = tuple[str, str, str, float]


class _Delta(Struct):
    content: str | None = None


class _Choice(Struct):
    delta: _Delta


class _Chunk(Struct):
    choices: list[_Choice]


_decoder = msgspec.json.Decoder(_Chunk)
_encoder = msgspec.json.Encoder()


class Writer:
    """Commits whatever is waiting in one transaction, on a thread of its own."""

    def __init__(self, path: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: queue.SimpleQueue[tuple[Row, asyncio.Future[None]]] = queue.SimpleQueue()
        threading.Thread(target=self._run, args=(path,), daemon=True).start()

    async def commit(self, row: Row) -> None:
        committed = self._loop.create_future()
        self._waiting.put((row, committed))
        await committed

    def _run(self, path: str) -> None:
        database = apsw.Connection(path)
        for _ in database.execute(_SCHEMA):
            pass
        while True:
            batch = [self._waiting.get()]
            while len(batch) < _MAX_BATCH and not self._waiting.empty():
                batch.append(self._waiting.get())
            with database:
                for row, _ in batch:
                    insert = "insert into messages(session, role, body, at) values (?, ?, ?, ?)"
                    database.execute(insert, row)
                    added = database.last_insert_rowid()
                    database.execute(
                        "insert into search(rowid, body) values (?, ?)", (added, row[2])
                    )
            self._loop.call_soon_threadsafe(_settle, [committed for _, committed in batch])


def _settle(committed: Sequence[asyncio.Future[None]]) -> None:
    for one in committed:
        if not one.done():
            one.set_result(None)


class Floor:
    def __init__(self, model: str, writer: Writer, http: aiohttp.ClientSession) -> None:
        self._model = model
        self._writer = writer
        self._http = http

    async def complete(self, request: web.Request) -> web.StreamResponse:
        asked = msgspec.json.decode(await request.read())
        session, question = uuid.uuid4().hex, asked["messages"][-1]["content"]
        await self._writer.commit((session, "user", question, time.time()))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        messages = [_SYSTEM, *asked["messages"]]
        body = _encoder.encode({"model": "mock", "stream": True, "messages": messages})
        answer: list[str] = []
        headers = {"Content-Type": "application/json"}
        url = f"{self._model}/chat/completions"
        async with self._http.post(url, data=body, headers=headers) as upstream:
            rest = b""
            async for data in upstream.content.iter_any():
                *events, rest = (rest + data).split(b"\n\n")
                tokens = [*filter(None, map(_token, events))]
                answer += tokens
                if tokens:
                    await response.write(b"".join(map(_event, tokens)))
        await self._writer.commit((session, "assistant", "".join(answer), time.time()))
        await response.write(_LAST)
        await response.write_eof()
        return response


def _token(event: bytes) -> str | None:
    if not event.startswith(b"data: {"):
        return None
    chunk = _decoder.decode(event[len(b"data: ") :])
    return chunk.choices[0].delta.content if chunk.choices else None


def _event(token: str) -> bytes:
    return _EVENT % (b'"delta":{"content":%b}' % _encoder.encode(token))


async def main(model: str, database: str) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        floor = Floor(model, Writer(database), http)
        app = web.Application()
        app.router.add_post("/v1/chat/completions", floor.complete)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        sys.stdout.write(f"{runner.addresses[0][1]}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
        await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
