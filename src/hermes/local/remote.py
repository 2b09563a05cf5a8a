"""The agent of a running gateway, spoken to through its socket."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from hermes import __version__
from hermes.local.failures import error_of
from hermes.local.line import Line, connected
from hermes.local.marks import marks_of
from hermes.local.partner import (
    Audience,
    GatewayGone,
    Greeting,
    Partner,
    Past,
    Question,
    Reply,
    Show,
    Start,
    State,
    Unheard,
    UsageReport,
)
from hermes.local.wire import (
    Accepted,
    Answer,
    Command,
    Decide,
    Ended,
    Failed,
    Happened,
    Hello,
    Look,
    Looked,
    Recount,
    Recounted,
    Refused,
    Replied,
    Report,
    Reported,
    Request,
    Say,
    Steer,
    Wake,
    Welcome,
    Woken,
)
from hermes.schema.errors import HermesError
from hermes.schema.events import Outcome, RunEnded

GLANCE = 0.1
"""Seconds for an answer that nobody waits for."""
DECISION = 5.0
"""Seconds in which a gateway says whether it takes somebody in."""


class Remote:
    def __init__(self, line: Line, welcome: Welcome) -> None:
        self._line = line
        self.greeting: Greeting = welcome.greeting
        self.state: State = welcome.state
        self._looking = False

    def say(self, question: Question, show: Show) -> Outcome:
        audience = Audience(show, self.interrupt)
        self._send(Say(question))
        while isinstance(answer := self._line.receive(), Happened):
            audience.hear(answer.event)
        if not isinstance(answer, Ended):
            self._fail(answer)
        self.state = answer.state
        audience.check()
        return answer.outcome

    def answer(self, question: str, words: str) -> None:
        self._line.send(Decide(question, words))

    def steer(self, word: str, text: str) -> None:
        self._line.send(Steer(word, text))

    def news(self) -> bool:
        """Asked in the middle of somebody's typing: an answer that is late counts later."""
        if not self._looking:
            self._line.send(Look())
            self._looking = True
        return self._line.ready(GLANCE) and self._looked()

    def _looked(self) -> bool:
        answer = self._line.receive()
        self._looking = False
        if not isinstance(answer, Looked):
            self._fail(answer)
        return answer.news

    def _send(self, request: Request) -> None:
        """One thing at a time: what was asked before is answered first."""
        if self._looking:
            try:
                self._looked()
            except GatewayGone as gone:
                raise Unheard(str(gone), hint=gone.hint) from gone
        self._line.send(request)

    def past(self) -> Past:
        self._send(Recount())
        answer = self._line.receive()
        if not isinstance(answer, Recounted):
            self._fail(answer)
        return answer.past

    def command(self, line: str) -> Reply:
        self._send(Command(line))
        answer = self._line.receive()
        if not isinstance(answer, Replied):
            self._fail(answer)
        self.state = answer.state
        return answer.reply

    def report(self, ended: RunEnded | None) -> UsageReport:
        self._send(Report(ended))
        answer = self._line.receive()
        if not isinstance(answer, Reported):
            self._fail(answer)
        return answer.report

    def interrupt(self) -> None:
        self._line.interrupt()

    def _fail(self, answer: Answer) -> NoReturn:
        if isinstance(answer, Failed):
            self.state = answer.state or self.state
        raise _failure(answer)


def _nobody(reason: str) -> None:
    """Whoever runs a turn alone is not interested in who else could have."""


@contextmanager
def open_remote(
    folder: Path,
    env: Mapping[str, str],
    start: Start,
    refused: Callable[[str], None] = _nobody,
) -> Generator[Partner | None]:
    """None when no gateway runs, or when its agent would not do the same as one of our own.

    `refused` hears what is different then.
    """
    hello = Hello(version=__version__, marks=marks_of(env), start=start)
    with connected(folder) as line:
        if line is None or not _taken_in(line, hello, refused):
            yield None
            return
        answer = line.receive()
        if not isinstance(answer, Welcome):
            raise _failure(answer)
        yield Remote(line, answer)


def _taken_in(line: Line, hello: Hello, refused: Callable[[str], None]) -> bool:
    line.wait_at_most(DECISION)
    try:
        line.send(hello)
        answer = line.receive()
    except (HermesError, UnicodeEncodeError):
        return False
    line.wait_at_most(None)
    if isinstance(answer, Refused):
        refused(answer.reason)
    return isinstance(answer, Accepted)


def wake(folder: Path) -> bool:
    """Tell the gateway of this home that there is something to do; False when none runs."""
    with connected(folder) as line:
        if line is None:
            return False
        line.wait_at_most(DECISION)
        try:
            line.send(Wake())
            return isinstance(line.receive(), Woken)
        except HermesError:
            return False


def _failure(answer: Answer) -> HermesError:
    if isinstance(answer, Failed):
        return error_of(answer.trouble)
    return GatewayGone(
        "The gateway answered something else than it was asked.",
        hint="Restart it: hermes gateway restart",
    )
