"""A scripted client for tests of the terminal UI."""

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import Raw, structs

from hermes.schema.errors import HermesError
from hermes.schema.events import (
    Event,
    MessageAdded,
    Outcome,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    RunStarted,
    TextDelta,
    ToolStarted,
)
from hermes.schema.messages import Assistant, Result, Stop, Text, ToolCall, Trust, Usage, User
from hermes.schema.questions import ApprovalChoice, Question, QuestionKind
from hermes.schema.shell import ShellResult
from hermes.schema.terminal import (
    ConversationState,
    Greeting,
    LineReply,
    NotACommand,
    QuitReply,
    RecentHistory,
    ResumedReply,
    ScreenAction,
    ScreenReply,
    SubmitReply,
    TextReply,
)
from hermes.schema.tools import Effect
from hermes.tui.client import MessageParts, ModelOption, SessionOption

CLIENT_TIMEOUT = 60.0
FAR_FUTURE = datetime(2040, 1, 1, tzinfo=UTC)
ClientStep = Event | Callable[[], object]
COMMANDS = {
    "clear": "Empty the screen.",
    "help": "Show the commands.",
    "model": "Show or change the model.",
    "new": "Start a new session.",
    "quit": "",
    "resume": "Go back to a session.",
    "retry": "Ask again.",
    "sessions": "List recent sessions.",
}


SCREEN_COMMANDS = {
    "ts": "times",
    "sb": "statusbar",
    "redraw": "redraw",
    "prompt": "compose",
    "output": "output",
}


def answer_events(text: str, *, used: int = 12_000) -> list[Event]:
    """The deltas of one answer and its message."""
    message = Assistant("m1", (Text(text),), Stop.END, Usage(input=used, output=10))
    words = [text[place : place + 7] for place in range(0, len(text), 7)]
    return [*(TextDelta(word) for word in words), MessageAdded(message)]


def tool_events(
    name: str, args: str, shown: str, *, call: str = "c1", failed: bool = False, text: str = ""
) -> list[Event]:
    return [
        ToolStarted(ToolCall(call, name, Raw(args.encode())), Effect.WRITE),
        MessageAdded(Result(f"r{call}", call, (Text(text or shown),), failed=failed, shown=shown)),
    ]


def approval_asked(id_: str = "q1", until: datetime = FAR_FUTURE, **options: str) -> QuestionAsked:
    return QuestionAsked(
        Question(
            id=id_,
            kind=QuestionKind.APPROVAL,
            session="s1",
            run="r1",
            text="May this command run outside of the sandbox?",
            subject=options.get("subject", "rm -rf build"),
            reason=options.get("reason", "to build anew"),
            origin=options.get("origin", ""),
            choices=tuple(ApprovalChoice),
            until=until,
        )
    )


def clarify_asked(*choices: str, text: str = "Which colour?") -> QuestionAsked:
    return QuestionAsked(
        Question(
            id="q2",
            kind=QuestionKind.CLARIFY,
            session="s1",
            run="r1",
            text=text,
            choices=choices,
            until=FAR_FUTURE,
        )
    )


class FakeTuiClient:
    """Plays scripted steps, one list per turn; callable steps are waited for."""

    def __init__(
        self,
        *turns: Sequence[ClientStep],
        hello: Greeting | None = None,
        past: RecentHistory | None = None,
    ) -> None:
        """With a `past` the session is resumed."""
        self.turns = list(turns)
        self.history = past or RecentHistory()
        self.greeting = hello or Greeting(
            model="openai/gpt-5-mini",
            folder="/srv/garden",
            commands=COMMANDS,
        )
        self.state = ConversationState(
            session="s1",
            started=past is not None,
            model="openai/gpt-5-mini",
            window=128_000,
            sandbox="bubblewrap",
        )
        self.messages: list[str] = []
        self.images: list[list[str]] = []
        self.clipboard = ""
        self.answers: list[tuple[str, str]] = []
        self.commands: list[str] = []
        self.steered: list[str] = []
        self.accepts_steering = True
        self.report_waiting = False
        self.unfinished_jobs = 0
        self.failure: HermesError | None = None
        self.open_error: Exception | None = None
        """Raised by `open`, if set."""
        self.reachable = threading.Event()
        self.reachable.set()
        self._stopped = threading.Event()
        self._decided = threading.Event()
        self._show: Callable[[Event], None] | None = None

    def open(self) -> None:
        assert self.reachable.wait(CLIENT_TIMEOUT)
        if self.open_error is not None:
            raise self.open_error

    def run_shell(self, command: str, show: Callable[[str], None]) -> ShellResult:
        output = f"{command} was run\n"
        show(output)
        return ShellResult(command, output, 1 if command == "false" else 0)

    def clipboard_image(self) -> str:
        if not self.clipboard:
            raise HermesError("There is no image in the clipboard.")
        return self.clipboard

    def submit(
        self, parts: MessageParts, images: Sequence[str], show: Callable[[Event], None]
    ) -> Outcome:
        self.messages.append(" ".join(part.text for part in parts if isinstance(part, Text)))
        self.images.append(list(images))
        if self.failure is not None:
            raise self.failure
        self._stopped.clear()
        self._decided.clear()
        self._show = show
        show(RunStarted("r1", "s1"))
        for step in self.turns.pop(0) if self.turns else answer_events("Plain answer."):
            if callable(step):
                step()
            else:
                show(step)
            if self._stopped.is_set():
                show(RunEnded("r1", Outcome.CANCELLED, "Interrupted.", "cancelled"))
                return Outcome.CANCELLED
        show(RunEnded("r1", Outcome.DONE))
        return Outcome.DONE

    def set_busy_mode(self, busy: str) -> None:
        """Set the mode for messages during a turn."""
        self.state = structs.replace(self.state, busy_mode=busy)

    def wait_until_stopped(self) -> None:
        assert self._stopped.wait(CLIENT_TIMEOUT)

    def wait_until_decided(self) -> None:
        assert self._decided.wait(CLIENT_TIMEOUT)
        self._decided.clear()

    def answer(self, question: str, text: str) -> None:
        self.answers.append((question, text))
        assert self._show is not None
        self._show(QuestionAnswered(question, text))
        self._decided.set()

    def steer(self, message_id: str, text: str) -> None:
        self.steered.append(text)
        if self.accepts_steering:
            assert self._show is not None
            self._show(MessageAdded(User(message_id, (Text(text),), Trust.OWNER)))
        self._decided.set()

    def has_news(self) -> bool:
        fresh, self.report_waiting = self.report_waiting, False
        return fresh

    def command(self, line: str) -> LineReply:
        self.commands.append(line)
        match line.split(maxsplit=1)[0]:
            case "/quit":
                return QuitReply()
            case "/new":
                self.state = structs.replace(self.state, session="s2")
                return TextReply("New session s2.")
            case "/clear":
                return TextReply("New session s2.", clear=True)
            case "/resume":
                self.state = structs.replace(self.state, session="s7")
                return ResumedReply("Resumed session s7.")
            case "/retry":
                return SubmitReply((Text("the same again"),), undone=1)
            case "/undo" | "/rollback":
                number = line.partition(" ")[2]
                return TextReply(f"Did {line}.", undone=int(number or 1))
            case "/path":
                return NotACommand()
            case "/ts" | "/sb" | "/redraw" | "/prompt" | "/output":
                what, words = line[1:].partition(" ")[::2]
                return ScreenReply(ScreenAction(SCREEN_COMMANDS[what]), words)
            case "/history":
                return TextReply("\n".join(f"command {number}" for number in range(100)))
            case _:
                return TextReply(f"Did {line}.")

    def compose_text(self, draft: str) -> str:
        return f"{draft} And more."

    def recent_history(self) -> RecentHistory:
        return self.history

    def cost(self, ended: RunEnded) -> float | None:
        return 0.0123

    def interrupt(self) -> None:
        self._stopped.set()
        self._decided.set()

    def sessions(self, query: str) -> Sequence[SessionOption]:
        at = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
        all_ = [
            SessionOption(id="s7", title="Plan the garden", messages=12, last_at=at),
            SessionOption(
                id="s8", title="Fix the fence", messages=3, last_at=at - timedelta(days=2)
            ),
        ]
        return [one for one in all_ if query.lower() in one.title.lower()]

    def models(self) -> Sequence[ModelOption]:
        return [
            ModelOption(provider="openai", model="gpt-5"),
            ModelOption(provider="openai", model="gpt-5-mini"),
            ModelOption(provider="ollama", error="connection refused"),
        ]
