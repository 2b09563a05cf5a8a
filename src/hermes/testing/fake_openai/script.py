"""What the mock server shall answer, as data that also loads from JSON."""

from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct


class Call(Struct, forbid_unknown_fields=True):
    """One tool call; `arguments` given as an object are encoded, a string is sent as it is.

    The `namespace` is that of tools which the Responses wire keeps in one.
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
    """The token counts to report; what is None is not reported."""

    prompt: int = 10
    completion: int = 5
    cached: int | None = None
    reasoning: int | None = None


class Fault(Struct, forbid_unknown_fields=True):
    """How an answer goes wrong.

    `status`: an error answer, `named` picks a known one, `body`/`headers` write it by hand.
    `cut`: the connection breaks after `after` chunks; `hang`: silence after them.
    `garbage`: bytes that are no event; `bad_json`: a chunk that is no JSON;
    `error_event`: an error object inside the stream; `no_end`: it just stops, without a
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
    """One answer. `chunk` is how many characters a delta carries, 0 for all of them at once.

    `headers` come with its stream.
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

    `steps` answer one after the other: the first to the user, the second to the results of
    the first one's calls, and so on; the last one repeats.
    """

    contains: str
    steps: list[Reply]


class Script(Struct, forbid_unknown_fields=True):
    """`replies` are used up in order, then the first matching rule speaks, then `default`."""

    replies: list[Reply] = []
    rules: list[Rule] = []
    default: Reply = msgspec.field(default_factory=lambda: Reply(text="Hello from the mock model."))
    models: tuple[str, ...] = ("mock-model",)
    api_key: str = ""


def load_script(path: Path) -> Script:
    return msgspec.json.decode(path.read_bytes(), type=Script)
