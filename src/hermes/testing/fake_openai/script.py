"""Scripts for the fake server, which can be loaded from JSON."""

from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct


class Call(Struct, forbid_unknown_fields=True):
    """One tool call; `arguments` given as an object are encoded, a string is sent unchanged.

    `namespace` is only used by the Responses API.
    """

    name: str
    arguments: str | dict[str, Any] = "{}"
    id: str | None = None
    namespace: str = ""

    @property
    def wire_arguments(self) -> str:
        if isinstance(self.arguments, str):
            return self.arguments
        return msgspec.json.encode(self.arguments).decode()


class TokenCounts(Struct, frozen=True, forbid_unknown_fields=True):
    """The token counts to report; None values are omitted."""

    prompt: int = 10
    completion: int = 5
    cached: int | None = None
    reasoning: int | None = None


class Fault(Struct, forbid_unknown_fields=True):
    """How an answer fails.

    `status`: an error response; `named` selects a known one, `body` and `headers` override it.
    `cut`: the connection breaks after `after` chunks; `hang`: the stream stalls after them.
    `garbage`: bytes that are not an event; `bad_json`: a chunk that is not JSON;
    `error_event`: an error object inside the stream; `no_end`: the stream ends without a
    finish reason and without [DONE]; `no_done`: a finish reason, but no [DONE].
    """

    kind: Literal[
        "status", "cut", "hang", "garbage", "bad_json", "error_event", "no_end", "no_done"
    ]
    after: int = 0
    status: int = 500
    named: str = ""
    body: str = ""
    headers: dict[str, str] = {}


class Reply(Struct, forbid_unknown_fields=True):
    """One answer; `chunk` is the number of characters per delta, or 0 for a single delta.

    `first_byte` and `pace` are delays in seconds before the answer and after each chunk.
    """

    text: str = ""
    calls: list[Call] = []
    reasoning: str = ""
    reasoning_field: Literal["reasoning_content", "reasoning", "reasoning_details"] = (
        "reasoning_content"
    )
    finish: str = ""
    usage: TokenCounts | None = TokenCounts()
    first_byte: float = 0.0
    pace: float = 0.0
    chunk: int = 8
    headers: dict[str, str] = {}
    fault: Fault | None = None

    @property
    def finish_reason(self) -> str:
        return self.finish or ("tool_calls" if self.calls else "stop")


class Rule(Struct, forbid_unknown_fields=True):
    """Applies when the last user text contains `contains`.

    The first of `steps` answers the user, the second the results of the first one's calls, and
    so on; the last one repeats.
    """

    contains: str
    steps: list[Reply]


class Script(Struct, forbid_unknown_fields=True):
    """Answers with `replies` in order, then with the first matching rule, else with `default`."""

    replies: list[Reply] = []
    rules: list[Rule] = []
    default: Reply = msgspec.field(default_factory=lambda: Reply(text="Hello from the mock model."))
    models: tuple[str, ...] = ("mock-model",)
    api_key: str = ""


def load_script(path: Path) -> Script:
    return msgspec.json.decode(path.read_bytes(), type=Script)
