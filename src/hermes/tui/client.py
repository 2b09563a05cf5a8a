"""The interface between the terminal UI and the agent."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol, TypeAlias

from msgspec import Struct

from hermes.schema.events import Event, Outcome, RunEnded
from hermes.schema.messages import Media, Text
from hermes.schema.shell import ShellResult
from hermes.schema.terminal import ConversationState, Greeting, LineReply, RecentHistory

CANCELLED = "cancelled"
"""Error code of a cancelled request."""

MessageParts: TypeAlias = tuple[Text | Media, ...]


class SessionOption(Struct, frozen=True, kw_only=True):
    """A session to resume; `found` is an excerpt with the search text."""

    id: str
    title: str
    messages: int
    last_at: datetime
    snippet: str = ""


class ModelOption(Struct, frozen=True, kw_only=True):
    """A model to choose; without a model, `trouble` says what is wrong with the provider."""

    provider: str
    model: str = ""
    error: str = ""


class TuiClient(Protocol):
    """A blocking connection to the agent; methods raise `HermesError`.

    `open` comes first; `greeting` and `state` are empty until it returns. One call at a time,
    except `answer`, `steer`, `interrupt`, `sessions` and `models`, which may be called from another
    thread while a turn is running.
    """

    @property
    def greeting(self) -> Greeting: ...

    @property
    def state(self) -> ConversationState: ...

    @property
    def unfinished_jobs(self) -> int:
        """The number of background tasks that end with the chat; those of a gateway go on."""
        ...

    def open(self) -> None:
        """Wait until the agent is ready."""
        ...

    def submit(
        self, parts: MessageParts, images: Sequence[str], show: Callable[[Event], None]
    ) -> Outcome:
        """Run one turn; `images` are paths, `show` is called in the calling thread."""
        ...

    def run_shell(self, command: str, show: Callable[[str], None]) -> ShellResult:
        """Run a command in the user's shell; `show` receives its output as it comes."""
        ...

    def clipboard_image(self) -> str:
        """Save the image in the clipboard and return its path."""
        ...

    def answer(self, question: str, text: str) -> None: ...

    def steer(self, message_id: str, text: str) -> None:
        """Send a message to the turn under the caller's id; the turn echoes it once received."""
        ...

    def has_news(self) -> bool:
        """Whether a report is pending; submit no parts to have it processed."""
        ...

    def command(self, line: str) -> LineReply: ...

    def recent_history(self) -> RecentHistory:
        """The messages of the session that are worth showing."""
        ...

    def cost(self, ended: RunEnded) -> float | None:
        """The cost of a run in dollars; None if unknown."""
        ...

    def interrupt(self) -> None:
        """Stop the turn, command or shell command that is running."""
        ...

    def compose_text(self, draft: str) -> str:
        """Edit the draft in the user's editor, which takes over the terminal."""
        ...

    def sessions(self, query: str) -> Sequence[SessionOption]:
        """The most recent sessions, or those that match the text."""
        ...

    def models(self) -> Sequence[ModelOption]: ...
