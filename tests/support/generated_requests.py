"""Requests to the API, generated from its OpenAPI document and by mutation."""

import random
import string
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import msgspec
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from msgspec import Struct
from schemathesis import GenerationMode
from yarl import URL

SOAK_TOTAL = 20_000
EACH = {"nothing": 8, "path": 130, "more": 170, "body": 90, "large": 40}
"""Number of random cases per operation in the soak test, by the kind of its input."""
LARGE = {"/v1/chat/completions", "/v1/runs", "/v1/responses"}
SEED = 20
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


class GeneratedRequest(Struct):
    method: str
    path: str
    template: str
    body: bytes | None
    headers: dict[str, str]
    query: str = ""

    @property
    def data(self) -> BytesIO | None:
        """Return the body as a stream, because the client warns about long bodies."""
        return None if self.body is None else BytesIO(self.body)

    @property
    def place(self) -> str:
        return f"{self.method} {self.template}"


FIRST = [
    GeneratedRequest("POST", "/api/sessions", "/api/sessions", b'{"id": "mine"}', {}),
    GeneratedRequest("POST", "/v1/responses", "/v1/responses", b'{"input": "hi"}', {}),
    GeneratedRequest("POST", "/v1/runs", "/v1/runs", b'{"input": "hi"}', {}),
]
"""Requests that create what the others refer to."""
_HI = b'{"role": "user", "content": "hi"}'
GOOD = [
    *FIRST[1:],
    GeneratedRequest("GET", "/v1/models/hermes-agent", "/v1/models/{model_id}", None, {}),
    *(
        GeneratedRequest("POST", "/v1/chat/completions", "/v1/chat/completions", body, {})
        for body in (
            b'{"messages": [%b]}' % _HI,
            b'{"stream": true, "model": "hermes-agent", "messages": [%b]}' % _HI,
            b'{"messages": [%b, {"role": "assistant", "content": "ho"}, %b]}' % (_HI, _HI),
        )
    ),
    *(
        GeneratedRequest(
            "POST", f"/api/sessions/mine{name}", f"/api/sessions/{{session_id}}{name}", body, {}
        )
        for name, body in (("/chat", b'{"message": "hi"}'), ("/chat/stream", b'{"input": "hi"}'))
    ),
]
"""Requests that mostly lead to a turn, also when mutated."""


def generate(api: dict[str, Any], share: float) -> Iterator[GeneratedRequest]:
    """Generate requests from the document: all boundary cases, a share of the random ones."""
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
                continue  # Nothing in them could be wrong.
            count = max(4, int(EACH[_taken(operation)] * share))
            some = _some(operation.as_strategy(generation_mode=mode), count)
            yield from map(answerable, some[::2])
            yield from some[1::2]


def _taken(operation: Any) -> str:
    if operation.body:
        return "large" if operation.path in LARGE else "body"
    if operation.query or operation.headers:
        return "more"
    return "path" if operation.path_parameters else "nothing"


def _some(strategy: Any, most: int) -> list[GeneratedRequest]:
    cases: list[GeneratedRequest] = []

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


def _sent(case: Any) -> GeneratedRequest:
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
    return GeneratedRequest(
        case.method.upper(), case.formatted_path, case.path, data, headers, query
    )


def answerable(one: GeneratedRequest) -> GeneratedRequest:
    """Remove references to unknown objects, so that a turn may start."""
    found = decode_all(one.body) if one.body else []
    if not found or not isinstance(found[0], dict):
        return one
    kept = {name: value for name, value in found[0].items() if name not in UNKNOWN}
    return msgspec.structs.replace(one, body=encoded(kept))


def encoded(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, UnicodeEncodeError, msgspec.MsgspecError):
        return repr(value).encode("utf-8", "replace")


class Mutator:
    """Deterministically mutates existing requests."""

    def __init__(self, corpus: list[GeneratedRequest]) -> None:
        self._corpus = corpus
        self._random = random.Random(SEED)  # noqa: S311 - always the same
        self._values = [value for one in corpus if one.body for value in decode_all(one.body)]
        self.ids: list[str] = list(SOME_IDS)
        self.known: list[str] = []

    def next(self) -> GeneratedRequest:
        chance = self._random
        one = chance.choice(GOOD if chance.random() < 0.15 else self._corpus)
        changes: list[Callable[[GeneratedRequest], GeneratedRequest]] = [
            self._value,
            self._bytes,
            self._header,
            self._id,
        ]
        for _ in range(chance.choice([1, 1, 2])):
            one = chance.choices(changes, [6, 1, 2, 3])[0](one)
        if chance.random() < 0.05:
            return msgspec.structs.replace(one, query=chance.choice(QUERIES))
        return one

    def _value(self, one: GeneratedRequest) -> GeneratedRequest:
        found = decode_all(one.body or b"{}")
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

    def _bytes(self, one: GeneratedRequest) -> GeneratedRequest:
        chance, data = self._random, bytearray(one.body or b"{}")
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(data) + 1)
            data[place : place + chance.randint(0, 2)] = chance.randbytes(chance.randint(0, 2))
        return msgspec.structs.replace(one, body=bytes(data))

    def _header(self, one: GeneratedRequest) -> GeneratedRequest:
        name = self._random.choice(list(HEADERS))
        headers = one.headers | {name: self._random.choice(HEADERS[name])}
        return msgspec.structs.replace(one, headers=headers)

    def _id(self, one: GeneratedRequest) -> GeneratedRequest:
        if "{" not in one.template:
            return self._header(one)
        chance = self._random
        last = self.ids[-1 - chance.randrange(min(40, len(self.ids)))]
        chosen = last if chance.random() < 0.7 else chance.choice(self.known)
        parts = [chosen if part.startswith("{") else part for part in one.template.split("/")]
        return msgspec.structs.replace(one, path="/".join(parts))


def decode_all(data: bytes) -> list[Any]:
    try:
        return [msgspec.json.decode(data)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
