"""20,000 generated requests to every route: none breaks the server, none is half done.

More than half are made by schemathesis from the server's own OpenAPI document, as it says and
against it: first what lies at the borders of what it says, then at random. The rest are these with
something changed: a value, a name, a byte, a header. What the handlers read of a request meanwhile
is what the document names.
"""

import random
import string
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
import pytest
import schemathesis
from aiohttp import web
from hypothesis import HealthCheck, Phase, given, seed, settings
from msgspec import Struct
from schemathesis import GenerationMode
from yarl import URL

from hermes.api.context import Route
from hermes.api.openapi import openapi
from hermes.api.server import ApiServer
from hermes.kit.clock import SystemClock
from hermes.store.connection import READ_ONLY, connect
from hermes.store.rows import fetch_number_or_none
from support.api_server import KEY, ApiHarness, ApiResponse, api_harness, api_settings

TOTAL = 20_000
EACH = {"nothing": 8, "path": 130, "more": 170, "body": 90, "large": 40}
"""How many schemathesis makes at random for an operation in each way, by what it takes."""
LARGE = {"/v1/chat/completions", "/v1/runs", "/v1/responses"}
SEED = 20
ENDLESS = "/api/sessions/{session_id}/events"
"""Whoever follows a session hears of it until it is gone: of this only the head is waited for."""
COUNTED = ("sessions", "messages", "parcels", "runs", "responses", "matters")
NASTY: list[Any] = [
    None, True, False, 0, -1, 2**63, -(2**63) - 1, 10**40, 1.5, -0.0, 1e308, "", " ", "\0",
    "ü" * 300,
    "../../etc/passwd", "x" * 5_000, "%00", "\u202e", "a\r\nX-Evil: 1", "user", "function", "text",
    "data:image/png;base64,AAAA", "http://127.0.0.1/", "run_1", "hermes-agent", [], {}, [[]], [{}],
    {"": ""}, {"type": "text"}, {"type": "file"}, {"role": "user", "content": "hi"}, [None] * 50,
]  # fmt: skip
HEADERS: dict[str, list[str]] = {
    "Idempotency-Key": ["a", "b", "", "x" * 300, "ü", " "],
    "X-Hermes-Session-Id": ["mine", "other", "../x", "", "a" * 300],
    "X-Hermes-Session-Key": ["k", "a b", ""],
    "Last-Event-ID": ["0", "1", "-1", "many", "9" * 30],
    "Content-Type": ["text/plain", "application/json; charset=latin-1", "", "multipart/form-data"],
    "Accept": ["text/event-stream", "*/*", "nothing"],
    "Content-Encoding": ["gzip", "identity"],
    "Authorization": ["Bearer", "Basic abc", "Bearer wrong-key-0123456789"],
}
QUERIES = [
    "",
    "limit=0",
    "limit=5",
    "limit=-1",
    "offset=9999999999",
    "after=1",
    "after=x",
    "a=b&a=c",
]
UNKNOWN = {"model", "previous_response_id", "session_id", "conversation"}
SOME_IDS = ["x1", "..", "%2e%2e", "a%00b", "run_x", "mine", "ü", "a b", "x" * 400]


class Sent(Struct):
    method: str
    path: str
    template: str
    body: bytes | None
    headers: dict[str, str]
    query: str = ""

    @property
    def data(self) -> BytesIO | None:
        """A stream: the client warns of long bodies that are given at once."""
        return None if self.body is None else BytesIO(self.body)

    @property
    def place(self) -> str:
        return f"{self.method} {self.template}"


FIRST = [
    Sent("POST", "/api/sessions", "/api/sessions", b'{"id": "mine"}', {}),
    Sent("POST", "/v1/responses", "/v1/responses", b'{"input": "hi"}', {}),
    Sent("POST", "/v1/runs", "/v1/runs", b'{"input": "hi"}', {}),
]
"""What is there for all the others."""
_HI = b'{"role": "user", "content": "hi"}'
GOOD = [
    *FIRST[1:],
    Sent("GET", "/v1/models/hermes-agent", "/v1/models/{model_id}", None, {}),
    *(
        Sent("POST", "/v1/chat/completions", "/v1/chat/completions", body, {})
        for body in (
            b'{"messages": [%b]}' % _HI,
            b'{"stream": true, "model": "hermes-agent", "messages": [%b]}' % _HI,
            b'{"messages": [%b, {"role": "assistant", "content": "ho"}, %b]}' % (_HI, _HI),
        )
    ),
    *(
        Sent("POST", f"/api/sessions/mine{name}", f"/api/sessions/{{session_id}}{name}", body, {})
        for name, body in (("/chat", b'{"message": "hi"}'), ("/chat/stream", b'{"input": "hi"}'))
    ),
]
"""Of these a turn comes, more often than not also with something changed."""


def document() -> dict[str, Any]:
    return openapi(ApiServer(api_settings(), SystemClock()).routes)


def made(api: dict[str, Any]) -> Iterator[Sent]:
    """What schemathesis makes of the document."""
    schema = schemathesis.openapi.from_dict(msgspec.to_builtins(api))
    for found in schema.get_all_operations():
        operation = found.ok()
        both = [GenerationMode.POSITIVE, GenerationMode.NEGATIVE]
        how = schema.config.generation_for(operation=operation)
        for case in schema.iter_coverage_cases(
            operation, generation_modes=both, generation_config=how
        ):
            yield _sent(case)
        for mode in both:
            if mode is GenerationMode.NEGATIVE and operation.path in {"/health", "/v1/health"}:
                continue  # There is nothing in them that could be wrong.
            some = _some(operation.as_strategy(generation_mode=mode), EACH[_taken(operation)])
            yield from map(answerable, some[::2])
            yield from some[1::2]


def _taken(operation: Any) -> str:
    if operation.body:
        return "large" if operation.path in LARGE else "body"
    if operation.query or operation.headers:
        return "more"
    return "path" if operation.path_parameters else "nothing"


def _some(strategy: Any, most: int) -> list[Sent]:
    cases: list[Sent] = []

    @settings(
        max_examples=most,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @seed(SEED)
    @given(strategy)
    def collect(case: Any) -> None:
        cases.append(_sent(case))

    collect()
    return cases


def _sent(case: Any) -> Sent:
    body = case.body
    if isinstance(body, bytes | str):
        data: bytes | None = body if isinstance(body, bytes) else body.encode("utf-8", "replace")
    elif type(body).__name__ == "NotSet":
        data = None
    else:
        data = encoded(body)
    headers = {
        str(name): str(value)
        for name, value in (case.headers or {}).items()
        if str(value).isascii()
        and str(value).isprintable()
        and name.lower() not in {"authorization", "content-length"}
    }
    query = str(
        URL.build(query={str(k): str(v) for k, v in (case.query or {}).items()}).query_string
    )
    return Sent(case.method.upper(), case.formatted_path, case.path, data, headers, query)


def answerable(one: Sent) -> Sent:
    """Without names of what is surely not there: a turn may come of it."""
    found = _decoded(one.body) if one.body else []
    if not found or not isinstance(found[0], dict):
        return one
    kept = {name: value for name, value in found[0].items() if name not in UNKNOWN}
    return msgspec.structs.replace(one, body=encoded(kept))


def encoded(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, UnicodeEncodeError, msgspec.MsgspecError):
        return repr(value).encode("utf-8", "replace")


class Changing:
    """Makes more requests out of those that are there, always the same ones."""

    def __init__(self, corpus: list[Sent]) -> None:
        self._corpus = corpus
        self._random = random.Random(SEED)  # noqa: S311 - always the same
        self._values = [value for one in corpus if one.body for value in _decoded(one.body)]
        self.ids: list[str] = list(SOME_IDS)
        self.known: list[str] = []

    def next(self) -> Sent:
        chance = self._random
        one = chance.choice(GOOD if chance.random() < 0.15 else self._corpus)
        changes: list[Callable[[Sent], Sent]] = [self._value, self._bytes, self._header, self._id]
        for _ in range(chance.choice([1, 1, 2])):
            one = chance.choices(changes, [6, 1, 2, 3])[0](one)
        if chance.random() < 0.05:
            return msgspec.structs.replace(one, query=chance.choice(QUERIES))
        return one

    def _value(self, one: Sent) -> Sent:
        found = _decoded(one.body or b"{}")
        if not found:
            return one
        return msgspec.structs.replace(one, body=encoded(self._changed(found[0])))

    def _changed(self, value: Any, depth: int = 0) -> Any:
        chance = self._random
        if depth > 6 or not value or not isinstance(value, dict | list) or chance.random() < 0.1:
            return chance.choice(NASTY + self._values[:200])
        copy = value.copy()
        places = list(range(len(copy))) if isinstance(copy, list) else list(copy)
        place = chance.choice(places)
        what = chance.random()
        if what < 0.15:
            del copy[place]
        elif what < 0.25 and isinstance(copy, dict):
            copy[chance.choice([*string.ascii_lowercase, "messages", "input"])] = copy[place]
        elif what < 0.3 and isinstance(copy, list):
            copy += [copy[place]] * chance.choice([1, 5, 200])
        else:
            copy[place] = self._changed(copy[place], depth + 1)
        return copy

    def _bytes(self, one: Sent) -> Sent:
        chance, data = self._random, bytearray(one.body or b"{}")
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(data) + 1)
            data[place : place + chance.randint(0, 2)] = chance.randbytes(chance.randint(0, 2))
        return msgspec.structs.replace(one, body=bytes(data))

    def _header(self, one: Sent) -> Sent:
        name = self._random.choice(list(HEADERS))
        headers = one.headers | {name: self._random.choice(HEADERS[name])}
        return msgspec.structs.replace(one, headers=headers)

    def _id(self, one: Sent) -> Sent:
        """Something that is there, more often than not."""
        if "{" not in one.template:
            return self._header(one)
        chance = self._random
        last = self.ids[-1 - chance.randrange(min(40, len(self.ids)))]
        chosen = last if chance.random() < 0.7 else chance.choice(self.known)
        parts = [chosen if part.startswith("{") else part for part in one.template.split("/")]
        return msgspec.structs.replace(one, path="/".join(parts))


def _decoded(data: bytes) -> list[Any]:
    try:
        return [msgspec.json.decode(data)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []


class Disk:
    """How much is written down.

    Read with the library that writes it: another one in the same process would, with each file
    it closes, let go of the locks of the first.
    """

    def __init__(self, home: Path) -> None:
        (file,) = home.glob("state.db")
        self._db = connect(file, READ_ONLY)
        self._version = 0

    def is_touched(self) -> bool:
        version = self._number("PRAGMA data_version")
        changed, self._version = version != self._version, version
        return changed

    def counts(self) -> dict[str, int]:
        return {name: self._number(f"SELECT count(*) FROM {name}") for name in COUNTED}  # noqa: S608

    def _number(self, question: str) -> int:
        return fetch_number_or_none(self._db.execute(question)) or 0

    def close(self) -> None:
        self._db.close()


class Trial:
    """Sends one request after the other, and looks at what each of them did."""

    def __init__(self, one: ApiHarness, api: dict[str, Any], disk: Disk) -> None:
        self._one = one
        self._paths = api["paths"]
        self._disk = disk
        self._counts = disk.counts()
        self.statuses: Counter[int] = Counter()
        self.places: Counter[str] = Counter()
        self.done: Counter[str] = Counter()

    async def send(self, sent: Sent) -> ApiResponse:
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        url = URL(f"{self._one.url}{sent.path}", encoded=True)
        url = url.with_query(sent.query) if sent.query else url
        with anyio.fail_after(60):
            async with self._one.http.request(
                sent.method, url, data=sent.data, headers=headers | sent.headers
            ) as response:
                given = {name.lower(): value for name, value in response.headers.items()}
                endless = sent.template == ENDLESS and response.status == 200
                told = ApiResponse(
                    response.status, given, b"" if endless else await response.read()
                )
                if endless:
                    response.close()
        self._check(sent, told)
        if told.status < 400:
            with anyio.fail_after(60):
                await self._one.server.entry.idle()
            self._counts = self._disk.counts()
        elif self._disk.is_touched():
            assert self._disk.counts() == self._counts, ("written and refused", sent, told)
        return told

    def _check(self, sent: Sent, told: ApiResponse) -> None:
        assert told.status < 500, (sent, told)
        self.statuses[told.status] += 1
        self.places[sent.place] += 1
        self.done[sent.place] += told.status < 400
        known = self._paths[sent.template].get(sent.method.lower(), {}).get("responses", {})
        if not known:
            # A method that is for other places.
            assert told.status in {204 if sent.method == "OPTIONS" else 405, 401, 404}, (sent, told)
        assert not known or str(told.status) in known or told.status in {404, 405}, (sent, told)
        if told.status >= 400:
            assert told.code, (sent, told)
            assert told.headers["content-type"].startswith("application/json")


def ids_in(told: ApiResponse) -> list[str]:
    if told.status >= 400 or not told.headers.get("content-type", "").startswith(
        "application/json"
    ):
        return []
    body = _decoded(told.body)
    found = body[0] if body and isinstance(body[0], dict) else {}
    return [
        one for name in ("id", "run_id", "session_id") if isinstance(one := found.get(name), str)
    ]


class Watched:
    """A request that tells what is read of it."""

    def __init__(self, request: web.Request, read: set[str]) -> None:
        self._request = request
        self._read = read

    @property
    def headers(self) -> "Names":
        return Names(self._request.headers, self._read, "header")

    @property
    def query(self) -> "Names":
        return Names(self._request.query, self._read, "query")

    def __getattr__(self, name: str) -> object:
        return getattr(self._request, name)

    def __getitem__(self, name: str) -> object:
        return self._request[name]


class Names:
    def __init__(self, given: Mapping[str, str], read: set[str], place: str) -> None:
        self._given = given
        self._read = read
        self._place = place

    def get(self, name: str, usual: str | None = None) -> str | None:
        self._read.add(f"{self._place} {name}")
        return self._given.get(name, usual)


def watch(server: ApiServer, read: dict[str, set[str]]) -> None:
    """Have written down what the handlers of each place read."""

    def watched(route: Route) -> Route:
        mine = read.setdefault(f"{route.method} {route.path}", set())

        async def handler(request: web.Request) -> web.StreamResponse:
            return await route.handler(cast("web.Request", Watched(request, mine)))

        return msgspec.structs.replace(route, handler=handler)

    server.routes = [watched(route) for route in server.routes]


def named_in(api: dict[str, Any]) -> dict[str, set[str]]:
    """What the document says that each place reads, besides what HTTP itself is about."""
    return {
        f"{method.upper()} {path}": {
            f"{one['in']} {one['name']}"
            for one in operation.get("parameters", [])
            if one["in"] != "path"
        }
        for path, operations in api["paths"].items()
        for method, operation in operations.items()
    }


async def try_all(
    folder: Path, api: dict[str, Any], corpus: list[Sent], read: dict[str, set[str]]
) -> Trial:
    changing = Changing(corpus)
    async with api_harness(folder, also=lambda server: watch(server, read)) as one:
        disk = Disk(folder)
        try:
            trial = Trial(one, api, disk)
            changing.known = [name for sent in FIRST for name in ids_in(await trial.send(sent))]
            for sent in GOOD:
                await trial.send(sent)
            for name in changing.known:
                path = "/v1/responses/{response_id}/input_items"
                await trial.send(Sent("GET", path.format(response_id=name), path, None, {}))
            for number in range(TOTAL):
                sent = corpus[number] if number < len(corpus) else changing.next()
                told = await trial.send(sent)
                changing.ids += ids_in(told)
            return trial
        finally:
            disk.close()


@pytest.mark.timeout(900)
def test_no_request_breaks_the_server(tmp_path: Path) -> None:
    api = document()
    corpus = list(made(api))
    read: dict[str, set[str]] = {}
    trial = anyio.run(try_all, tmp_path, api, corpus, read)
    assert trial.statuses.total() > TOTAL
    assert len(corpus) > TOTAL / 2
    assert set(named_in(api)) <= set(trial.places)
    for path in LARGE:
        assert trial.done[f"POST {path}"] > 9, path
    of_http = {"header Content-Encoding"}
    assert {place: names - of_http for place, names in read.items()} == named_in(api)
    refused = sum(count for status, count in trial.statuses.items() if status >= 400)
    assert refused > TOTAL / 4
    assert trial.statuses[200] > TOTAL / 20
    sys.stdout.write(f"{len(corpus)} made, {TOTAL} sent: {sorted(trial.statuses.items())}\n")
