"""What a feature offers on the surfaces, as plain data: a verb with actions, routes and tools.

The command line renders a verb with argparse, chats and the terminal UI as a slash command, the
API its routes with aiohttp, and the tools of the agent wrap its tools. A feature imports none of
these. Handlers are called with the feature's service, which the app builds.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Generic, TypeAlias, TypeVar

from msgspec import Struct

from hermes.ports.tool import ToolContext
from hermes.schema.errors import UsageError
from hermes.schema.scope import Address, Scope
from hermes.schema.tools import Effect

S = TypeVar("S")
"""The service of a feature."""

ArgumentValue: TypeAlias = str | int | bool | Sequence[str] | None


class ArgumentKind(StrEnum):
    TEXT = "text"
    NUMBER = "number"
    SWITCH = "switch"  # a flag without a value
    LIST = "list"  # a flag that may be repeated
    WORDS = "words"  # all remaining words, as one text


class Argument(Struct, frozen=True, kw_only=True):
    """An argument by position (`job`) or a flag (`--name`)."""

    name: str
    help: str
    kind: ArgumentKind = ArgumentKind.TEXT
    required: bool = False
    choices: tuple[str, ...] = ()

    @property
    def is_flag(self) -> bool:
        return self.name.startswith("--")

    @property
    def key(self) -> str:
        """The name of the value in a call."""
        return self.name.removeprefix("--").replace("-", "_")


class ActionCall(Struct, frozen=True, kw_only=True):
    """A call of an action; `scope` is the session it came from, `folder` the current folder.

    `say` shows a line while the action runs, where that is possible.
    """

    values: Mapping[str, ArgumentValue]
    scope: Scope | None = None
    folder: str = ""
    say: Callable[[str], None] = lambda line: None

    @property
    def prefix(self) -> str:
        """What precedes the verb's name on this surface."""
        return "hermes " if self.scope is None else "/"

    @property
    def address(self) -> Address | None:
        """The chat it came from."""
        return None if self.scope is None else self.scope.address

    def text(self, key: str) -> str:
        """The text of an argument, or an empty one."""
        value = self.values.get(key)
        return value if isinstance(value, str) else ""

    def given(self, key: str) -> bool:
        return self.values.get(key) is not None

    def number(self, key: str, default: int) -> int:
        value = self.values.get(key)
        return default if value is None or not isinstance(value, int) else value

    def switch(self, key: str) -> bool:
        return self.values.get(key) is True

    def texts(self, key: str) -> list[str]:
        value = self.values.get(key)
        return [] if value is None or isinstance(value, str | int) else list(value)


class ActionReply(Struct, frozen=True):
    """The answer for a person, as `data` for `--json`, and the exit code of the command.

    `submit` is a message that the session answers next, in the user's name.
    """

    text: str
    data: object = None
    code: int = 0
    submit: str = ""


class Action(Struct, Generic[S], frozen=True, kw_only=True):
    """One action of a verb, such as `create` of `hermes cron` and of `/cron`.

    With `for_others`, people other than the owner may call it; the action checks what they may do.
    With `runs_agent`, the command line accepts `--accept-hooks`.
    """

    name: str
    summary: str
    run: Callable[[S, ActionCall], Awaitable[ActionReply]]
    arguments: tuple[Argument, ...] = ()
    aliases: tuple[str, ...] = ()
    for_others: bool = False
    runs_agent: bool = False


class Verb(Struct, Generic[S], frozen=True, kw_only=True):
    """A command with actions; without one, a slash command runs `default`.

    `options` are flags of the actions that may also precede the name of the action. With
    `fallback`, text that does not begin with an action's name is the argument of that action.
    `in_session` verbs belong to a session, which is opened if a chat has none.
    """

    name: str
    summary: str
    actions: tuple[Action[S], ...]
    default: str = ""
    options: tuple[Argument, ...] = ()
    fallback: str = ""
    usage: str = "[action]"
    in_session: bool = False

    def find(self, name: str) -> Action[S]:
        for action in self.actions:
            if name in (action.name, *action.aliases):
                return action
        known = ", ".join(action.name for action in self.actions)
        raise UsageError(f"{self.name}: unknown action {name!r}.", hint=f"Actions: {known}.")


class UploadedFile(Struct, frozen=True):
    name: str
    content_type: str
    data: bytes


class FileAnswer(Struct, frozen=True):
    """A file to download, as the answer of a route."""

    name: str
    content_type: str
    data: bytes


class RouteRequest(Struct, frozen=True, kw_only=True):
    """A request: the names in the path, the query, and the decoded body if the route has one.

    `file` is the uploaded form field `file`, if the route accepts one.
    """

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any = None
    file: UploadedFile | None = None

    def text(self, name: str) -> str | None:
        """A parameter of the query; None if it is missing or empty."""
        return self.query.get(name) or None


class FeatureRoute(Struct, Generic[S], frozen=True, kw_only=True):
    """An HTTP route with the types of its body and answer; `{name}` in the path is a variable.

    `query` describes the query parameters. A `UsageError` becomes status 400, `NotFound` 404.
    """

    method: str
    path: str
    summary: str
    run: Callable[[S, RouteRequest], Awaitable[object]]
    answer: object
    body: type[Struct] | None = None
    query: Mapping[str, str] = {}
    status: int = 200
    has_upload: bool = False


class FeatureTool(Struct, Generic[S], frozen=True, kw_only=True):
    """A tool of the agent: `arguments` is the Struct of its parameters.

    `description` is the file with what the model reads. The answer is encoded as JSON; `foreign`
    says that it may contain untrusted text, such as what other agents wrote. Parameters in
    `unlisted` are accepted, but not shown to the model.
    """

    name: str
    description: str
    arguments: type[Struct]
    effect: Effect
    timeout: float
    toolset: str
    run: Callable[[S, Any, ToolContext], Awaitable[object]]
    unlisted: frozenset[str] = frozenset()
    foreign: bool = False
