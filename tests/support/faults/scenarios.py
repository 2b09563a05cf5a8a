"""Fault scenarios, the messages expected at each surface, and the check of a message."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from hermes.testing.fake_openai import Script

SECRET_KEY = "sk-test-0123456789"
STALE_TIMEOUT_KEY = "local_stream_stale_timeout"
SETTINGS = "agent:\n  api_max_retries: 1\n"


class Surface(StrEnum):
    PROMPT = "-z"
    PLAIN = "plain chat"
    SCREEN = "terminal UI"
    LIBRARY = "library"
    API = "API"
    CHAT = "gateway chat"
    GATEWAY = "gateway run"
    DOCTOR = "doctor"
    CHECK = "config check"


class ExpectedMessage(Struct, frozen=True):
    """`cause` and `step` must occur in the message; `exit_code` is that of the command line."""

    name: str
    cause: str
    step: str
    exit_code: int = 1


class FaultSwitch(Struct, frozen=True):
    """Starts and ends the fault."""

    on: Callable[[], object] = lambda: None
    off: Callable[[], object] = lambda: None


OpenFault = Callable[[Path], AbstractContextManager[FaultSwitch]]


class FaultMoment(StrEnum):
    """When a fault shows: on opening the home, in the greeting, or in a turn."""

    OPENING = "opening"
    GREETING = "greeting"
    TURN = "turn"


def _no_fault(home: Path) -> AbstractContextManager[FaultSwitch]:
    return nullcontext(FaultSwitch())


class FaultScenario(Struct, frozen=True, kw_only=True):
    """A home with faults and the expected messages.

    `url` is the model's address if it is not the fake's, `script` that of another fake. `broken`
    damages the home; `open_fault` opens a fault that is switched on later. `cannot`
    says why the faults do not occur at a surface; `differs` has the messages that differ there.
    """

    name: str
    faults: Sequence[ExpectedMessage]
    cannot: Mapping[Surface, str]
    moment: FaultMoment = FaultMoment.TURN
    url: str = ""
    script: Script | None = None
    env: Mapping[str, str] = {}
    settings: str = SETTINGS
    silence: float | None = None
    """Seconds until a silent model times out, if not the default."""
    words: Sequence[str] = ()
    broken: Callable[[Path], object] = lambda home: None
    open_fault: OpenFault = _no_fault
    differs: Mapping[Surface, ExpectedMessage] = {}
    kept: bool = True
    """Whether the user's message is stored although there is no answer."""
    long: bool = False
    """Too slow for anything but `make soak`."""

    @property
    def config(self) -> str:
        """The settings file; those of the agent come last."""
        if self.silence is None:
            return self.settings
        return f"{self.settings}  {STALE_TIMEOUT_KEY}: {self.silence}\n"

    def at(self, surface: Surface) -> Sequence[ExpectedMessage]:
        return [self.differs[surface]] if surface in self.differs else self.faults


NO_TURN = "It lists the provider's models and runs no turn."
FILES_ONLY = "It only reads the settings."
OTHER_FILES = "It reads the settings, and they are fine."
STARTS = "A gateway starts anyway, and reports it when asked."
NO_GATEWAY = "No gateway starts in such a home: `gateway run` says so."
NO_FLAGS = "There is no command line."
NO_SESSION = "It opens no conversation."
MODEL_HEARS = "The call fails, and the model reports it in its own words."
OWNER_HEARS = "The owner has to fix it: the doctor and `config check` report it."
NO_PORT = "It does not listen on a port."

IN_TURNS = {
    Surface.GATEWAY: STARTS,
    Surface.DOCTOR: NO_TURN,
    Surface.CHECK: FILES_ONLY,
}
IN_MODELS = {Surface.GATEWAY: STARTS, Surface.CHECK: FILES_ONLY}
IN_HOMES = {Surface.CHAT: NO_GATEWAY, Surface.API: NO_GATEWAY}
IN_STORES = {**IN_HOMES, Surface.CHECK: OTHER_FILES}


def all_surfaces_but(*surfaces: Surface, because: str, **more: str) -> Mapping[Surface, str]:
    """Give the reason why a fault occurs only at these surfaces."""
    return {one: more.get(one.name, because) for one in Surface if one not in surfaces}


_COMMAND = re.compile(
    r"\bhermes (?:-z|[a-z]+)\b|(?<!\S)/(?:new|model|undo)\b|--[a-z-]+"
    r"|\b(?:export|mv|chmod|sudo|make|ls -ld|df -h|ollama pull)\b"
)
_WINDOW = 6


_LABEL = re.compile(r"(?:hermes: )?(?:warning: |error: )?")
_END = re.compile(r"[.?!…][\"”')\]]*(?=\s|$)|\n")


def split_messages(shown: str, *known: str) -> list[str]:
    """Split output into messages: each starts at the margin and continues in indented lines.

    Lines in `known` also appear without a fault.
    """
    messages: list[str] = []
    for line in shown.splitlines():
        if not line.strip() or line in known:
            continue
        if messages and line[0].isspace():
            messages[-1] += f"\n{line}"
        else:
            messages.append(line)
    return messages


def sentences(message: str) -> list[str]:
    """Split into sentences, which end with a punctuation mark or at the end of a line."""
    text = message.strip()
    found = _END.split(text[_LABEL.match(text).end() :])  # pyright: ignore[reportOptionalMemberAccess]
    return [" ".join(one.split()) for one in found if one.strip()]


def check_message(expected: ExpectedMessage, messages: Sequence[str]) -> None:
    """Check for one message with the cause, and the next step in the same or a second sentence.

    No third sentence, no repetition, and no internals of the program.
    """
    where = f"{expected.name}: {messages!r}"
    assert len(messages) == 1, f"{len(messages)} messages: {where}"
    (shown,) = messages
    for insides in ("Traceback", "internal error", "Errno", SECRET_KEY, "<class", "0x7f"):
        assert insides not in shown, where
    parts = sentences(shown)
    assert len(parts) in {1, 2}, f"{len(parts)} sentences: {where}"
    flat = " ".join(parts)
    assert (parts[0].count(expected.cause), flat.count(expected.cause)) == (1, 1), where
    step = parts[1] if len(parts) == 2 else flat[flat.index(expected.cause) :]
    assert step.count(expected.step) == 1, where
    assert _COMMAND.search(step) or expected.step in _STEPS_WITHOUT_COMMAND, where
    words = flat.split()
    windows = [" ".join(words[at : at + _WINDOW]) for at in range(len(words) - _WINDOW + 1)]
    assert len(windows) == len({*windows}), f"repetition: {where}"


_STEPS_WITHOUT_COMMAND = (
    "Just start writing",
    "Known toolsets",
    "Check",
    "PNG",
    "Choose one of",
    "another path",
)
"""Steps without a command, where a word of the typed command must change."""
