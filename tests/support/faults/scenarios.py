"""A world in which things go wrong, what is said then at each surface, and how it is judged."""

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
    """`cause` and `step` are words of the sentence; the exit code is the command line's."""

    name: str
    cause: str
    step: str
    exit_code: int = 1


class FaultSwitch(Struct, frozen=True):
    """Begins the trouble, and ends it."""

    on: Callable[[], object] = lambda: None
    off: Callable[[], object] = lambda: None


OpenFault = Callable[[Path], AbstractContextManager[FaultSwitch]]


class FaultMoment(StrEnum):
    """When a fault shows: as the home is opened, in a greeting, or in a turn."""

    OPENING = "opening"
    GREETING = "greeting"
    TURN = "turn"


def _no_fault(home: Path) -> AbstractContextManager[FaultSwitch]:
    return nullcontext(FaultSwitch())


class FaultScenario(Struct, frozen=True, kw_only=True):
    """A home in which things go wrong, and what is said then.

    `url` is the model's address where it is not the mock's, `script` that of another mock;
    `broken` writes what is wrong with the home, `trouble` begins when it is told to. `cannot`
    says why these faults do not come up at a surface; `differs` is what is said there in other
    words.
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
    """Seconds after which a silent model is given up, where these are not the usual ones."""
    words: Sequence[str] = ()
    broken: Callable[[Path], object] = lambda home: None
    trouble: OpenFault = _no_fault
    differs: Mapping[Surface, ExpectedMessage] = {}
    kept: bool = True
    """What was said is stored, although nobody could answer."""
    long: bool = False
    """It takes so long that only `make soak` has the time."""

    @property
    def config(self) -> str:
        """What stands in its file of settings, where those of the agent come last."""
        if self.silence is None:
            return self.settings
        return f"{self.settings}  {STALE_TIMEOUT_KEY}: {self.silence}\n"

    def at(self, surface: Surface) -> Sequence[ExpectedMessage]:
        return [self.differs[surface]] if surface in self.differs else self.faults


NO_TURN = "It asks the provider for its models and makes no turn."
FILES_ONLY = "It reads the settings and asks nobody."
OTHER_FILES = "It reads the settings, and they are fine."
STARTS = "A gateway starts all the same, and tells whoever asks it."
NO_GATEWAY = "No gateway starts in such a home: `gateway run` says so."
NO_FLAGS = "There is no command line."
NO_SESSION = "It makes no conversation."
MODEL_HEARS = "The call fails, and the model tells of it in its own words."
OWNER_HEARS = "It is the owner's to mend: the doctor and `config check` tell."
NO_PORT = "It listens at no port."

IN_TURNS = {
    Surface.GATEWAY: STARTS,
    Surface.DOCTOR: NO_TURN,
    Surface.CHECK: FILES_ONLY,
}
IN_MODELS = {Surface.GATEWAY: STARTS, Surface.CHECK: FILES_ONLY}
IN_HOMES = {Surface.CHAT: NO_GATEWAY, Surface.API: NO_GATEWAY}
IN_STORES = {**IN_HOMES, Surface.CHECK: OTHER_FILES}


def all_surfaces_but(*surfaces: Surface, because: str, **more: str) -> Mapping[Surface, str]:
    """The reason why a fault comes up at these alone."""
    return {one: more.get(one.name, because) for one in Surface if one not in surfaces}


_COMMAND = re.compile(
    r"\bhermes (?:-z|[a-z]+)\b|(?<!\S)/(?:new|model|undo)\b|--[a-z-]+"
    r"|\b(?:export|mv|chmod|sudo|make|ls -ld|df -h|ollama pull)\b"
)
_WINDOW = 6


_LABEL = re.compile(r"(?:hermes: )?(?:warning: |error: )?")
_END = re.compile(r"[.?!…][\"”')\]]*(?=\s|$)|\n")


def split_messages(shown: str, *known: str) -> list[str]:
    """What a command tells: a message begins at the margin, and goes on in indented lines.

    Lines that are `known` would be there without a fault, too.
    """
    told: list[str] = []
    for line in shown.splitlines():
        if not line.strip() or line in known:
            continue
        if told and line[0].isspace():
            told[-1] += f"\n{line}"
        else:
            told.append(line)
    return told


def sentences(message: str) -> list[str]:
    """A sentence ends with its mark before a space, and where a line ends."""
    text = message.strip()
    found = _END.split(text[_LABEL.match(text).end() :])  # pyright: ignore[reportOptionalMemberAccess]
    return [" ".join(one.split()) for one in found if one.strip()]


def check_message(said: ExpectedMessage, told: Sequence[str]) -> None:
    """Exactly one message: a sentence with the cause, and in it or in one more the next step.

    There is no third sentence, nothing is said twice, and nothing of the program's insides.
    """
    where = f"{said.name}: {told!r}"
    assert len(told) == 1, f"{len(told)} messages: {where}"
    (shown,) = told
    for insides in ("Traceback", "internal error", "Errno", SECRET_KEY, "<class", "0x7f"):
        assert insides not in shown, where
    parts = sentences(shown)
    assert len(parts) in {1, 2}, f"{len(parts)} sentences: {where}"
    flat = " ".join(parts)
    assert (parts[0].count(said.cause), flat.count(said.cause)) == (1, 1), where
    step = parts[1] if len(parts) == 2 else flat[flat.index(said.cause) :]
    assert step.count(said.step) == 1, where
    assert _COMMAND.search(step) or said.step in _STEPS_WITHOUT_COMMAND, where
    words = flat.split()
    windows = [" ".join(words[at : at + _WINDOW]) for at in range(len(words) - _WINDOW + 1)]
    assert len(windows) == len({*windows}), f"said twice: {where}"


_STEPS_WITHOUT_COMMAND = (
    "Just start talking",
    "Known toolsets",
    "Check",
    "PNG",
    "Choose one of",
    "another path",
)
"""Steps for which there is no command: a word of the one that was typed is to be another."""
