"""20,000 generated requests to every route: none breaks the server, none is half done.

The first are made by schemathesis from the server's own OpenAPI document, half of them as it says
and half against it. The rest are these with something changed: a value, a name, a byte, a header.
"""

import random
import string
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from msgspec import Struct
from schemathesis import GenerationMode
from yarl import URL

from api_house import KEY, House, Told, house
from api_house import settings as api_settings
from hermes.api.openapi import openapi
from hermes.api.server import ApiServer
from hermes.kit.clock import SystemClock
from hermes.store.connection import READ_ONLY, connect
from hermes.store.rows import number_or_none

TOTAL = 20_000
EACH = 16
"""How many schemathesis makes for each operation in each way."""
SEED = 20
ENDLESS = {"/api/sessions/{session_id}/events"}
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


def document() -> dict[str, Any]:
    return openapi(ApiServer(api_settings(), SystemClock()).routes)


def made(api: dict[str, Any]) -> Iterator[Sent]:
    """What schemathesis makes of the document."""
    schema = schemathesis.openapi.from_dict(msgspec.to_builtins(api))
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path in ENDLESS:
            continue
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            if mode is GenerationMode.NEGATIVE and operation.path in {"/health", "/v1/health"}:
                continue  # There is nothing in them that could be wrong.
            yield from _some(operation.as_strategy(generation_mode=mode))


def _some(strategy: Any) -> list[Sent]:
    cases: list[Sent] = []

    @settings(
        max_examples=EACH,
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

    def next(self) -> Sent:
        chance = self._random
        one = chance.choice(self._corpus)
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
        chosen = self.ids[-1 - chance.randrange(min(40, len(self.ids)))]
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
        return number_or_none(self._db.execute(question)) or 0

    def close(self) -> None:
        self._db.close()


class Trial:
    """Sends one request after the other, and looks at what each of them did."""

    def __init__(self, one: House, api: dict[str, Any], disk: Disk) -> None:
        self._one = one
        self._paths = api["paths"]
        self._disk = disk
        self._counts = disk.counts()
        self.statuses: Counter[int] = Counter()
        self.places: Counter[str] = Counter()

    async def send(self, sent: Sent) -> Told:
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        url = URL(f"{self._one.url}{sent.path}", encoded=True)
        url = url.with_query(sent.query) if sent.query else url
        with anyio.fail_after(60):
            async with self._one.http.request(
                sent.method, url, data=sent.data, headers=headers | sent.headers
            ) as response:
                given = {name.lower(): value for name, value in response.headers.items()}
                told = Told(response.status, given, await response.read())
        self._check(sent, told)
        if told.status < 400:
            with anyio.fail_after(60):
                await self._one.server.entry.idle()
            self._counts = self._disk.counts()
        elif self._disk.is_touched():
            assert self._disk.counts() == self._counts, ("written and refused", sent, told)
        return told

    def _check(self, sent: Sent, told: Told) -> None:
        assert told.status < 500, (sent, told)
        self.statuses[told.status] += 1
        self.places[sent.place] += 1
        known = self._paths[sent.template].get(sent.method.lower(), {}).get("responses", {})
        assert str(told.status) in known or told.status in {404, 405}, (sent, told)
        if told.status >= 400:
            assert told.code, (sent, told)
            assert told.headers["content-type"].startswith("application/json")


def ids_in(told: Told) -> list[str]:
    if told.status >= 400 or not told.headers.get("content-type", "").startswith(
        "application/json"
    ):
        return []
    body = _decoded(told.body)
    found = body[0] if body and isinstance(body[0], dict) else {}
    return [
        one for name in ("id", "run_id", "session_id") if isinstance(one := found.get(name), str)
    ]


async def try_all(folder: Path, api: dict[str, Any], corpus: list[Sent]) -> Trial:
    changing = Changing(corpus)
    async with house(folder) as one:
        disk = Disk(folder)
        try:
            trial = Trial(one, api, disk)
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
    trial = anyio.run(try_all, tmp_path, api, corpus)
    assert trial.statuses.total() == TOTAL
    assert {place.split(" ")[1] for place in trial.places} == set(api["paths"]) - ENDLESS
    refused = sum(count for status, count in trial.statuses.items() if status >= 400)
    assert refused > TOTAL / 4
    assert trial.statuses[200] > TOTAL / 20
    sys.stdout.write(f"{len(corpus)} made, {TOTAL} sent: {sorted(trial.statuses.items())}\n")
