"""Summarize the last exchanges of a session when it is resumed, with interrupted turns marked."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from hermes.kit.report_text import report_text
from hermes.kit.text import one_line
from hermes.schema.call_label import call_label
from hermes.schema.messages import (
    Assistant,
    Message,
    Result,
    ToolCall,
    Trust,
    User,
    text_of,
    typed_text,
)
from hermes.schema.sessions import StoredMessage

_NEWS = "news"
INTERRUPTED = "(interrupted before it was answered)"
UNANSWERED = "(not answered)"
FAILED = "(not answered: {reason})"
MAX_ROWS = 400
MAX_BYTES = 4 * 1024 * 1024
"""Limits on the messages read for a recap."""
_MAX_LINE = 200


def is_question(row: StoredMessage) -> bool:
    message = row.message
    followup = not row.run and isinstance(message, User) and message.trust is Trust.DATA
    return isinstance(message, User) and message.trust is not Trust.PROGRAM and not followup


def recap(
    rows: Sequence[StoredMessage],
    turns: int,
    *,
    running: bool = False,
    partial: bool = False,
    failures: Mapping[str, str] | None = None,
) -> list[tuple[str, str]]:
    """The last questions and answers as (speaker, text).

    Lines about a turn without an answer (finished calls, and why it has no answer) have an empty
    speaker. With `running` the last turn may still be running; with `partial` the first may have
    started before these rows. `failures` are the reasons of failed runs (`session.run_failures`).
    """
    reasons = failures or {}
    lines = [
        line
        for turn, open_ in _turns(rows, running=running, partial=partial)
        for line in _turn_lines(turn, _missing_reason(turn, reasons) if open_ else "")
    ]
    spoken = [index for index, (speaker, _) in enumerate(lines) if speaker]
    return lines[spoken[-2 * turns :][0] :] if spoken and turns else []


def interrupted_at(
    rows: Sequence[StoredMessage],
    *,
    running: bool = False,
    partial: bool = False,
    failures: Collection[str] = (),
) -> frozenset[int]:
    """The positions of the last messages of interrupted turns."""
    turns = _turns(rows, running=running, partial=partial)
    return frozenset(
        turn[-1].seq for turn, open_ in turns if open_ and _run_of(turn) not in failures
    )


def failed_at(
    rows: Sequence[StoredMessage],
    failures: Mapping[str, str],
    *,
    running: bool = False,
    partial: bool = False,
) -> dict[int, str]:
    """Why turns failed, by the positions of their last messages; empty if unknown."""
    turns = _turns(rows, running=running, partial=partial)
    return {
        turn[-1].seq: one_line(failures[_run_of(turn)], _MAX_LINE)
        for turn, open_ in turns
        if open_ and _run_of(turn) in failures
    }


def _turns(
    rows: Sequence[StoredMessage], *, running: bool, partial: bool
) -> list[tuple[list[StoredMessage], bool]]:
    """Each turn, and whether it lacks an answer."""
    turns: list[list[StoredMessage]] = []
    run = ""
    for row in rows:
        # Rows without a run are follow-ups, or results that close a call of the turn before.
        if not turns or (row.run and row.run != run):
            turns.append([])
            run = row.run
        turns[-1].append(row)
    found: list[tuple[list[StoredMessage], bool]] = []
    for index, turn in enumerate(turns):
        later = turns[index + 1] if index + 1 < len(turns) else None
        # A turn whose calls were left to the client continues with their results.
        continues = running if later is None else isinstance(later[0].message, Result)
        found.append((turn, not continues and _is_open(turn, partial=partial and not index)))
    return found


def _is_open(turn: Sequence[StoredMessage], *, partial: bool) -> bool:
    """Whether the turn has a question (or continues one) and no final answer."""
    messages = [row.message for row in turn if row.run]
    if not messages or not (partial or any(row.run and is_question(row) for row in turn)):
        return False
    last = next((each for each in reversed(messages) if not isinstance(each, Result)), None)
    return not isinstance(last, Assistant) or bool(last.calls)


def _run_of(turn: Sequence[StoredMessage]) -> str:
    return next((row.run for row in turn if row.run), "")


def _missing_reason(turn: Sequence[StoredMessage], failures: Mapping[str, str]) -> str:
    reason = failures.get(_run_of(turn))
    if reason is None:
        return INTERRUPTED
    return FAILED.format(reason=one_line(reason, _MAX_LINE)) if reason.strip() else UNANSWERED


def _turn_lines(turn: Sequence[StoredMessage], missing: str) -> Iterator[tuple[str, str]]:
    results = {row.message.call: row.message for row in turn if isinstance(row.message, Result)}
    for row in turn:
        message = row.message
        if is_question(row) or isinstance(message, Assistant):
            speaker = _speaker(message)
            text = typed_text(message) if isinstance(message, User) else text_of(message)
            if text.strip():
                yield speaker, report_text(text, _MAX_LINE) if speaker == _NEWS else text
        if missing and isinstance(message, Assistant):
            done = [(call, results[call.id]) for call in message.calls if call.id in results]
            yield from (("", _call_line(call, result)) for call, result in done)
    if missing:
        yield "", missing


def _call_line(call: ToolCall, result: Result) -> str:
    return one_line(f"{'✗' if result.failed else '✓'} {call_label(call)}", _MAX_LINE)


def _speaker(message: Message) -> str:
    """Who wrote a message; follow-ups are labeled `news`."""
    if isinstance(message, User):
        return "you" if message.trust in {Trust.OWNER, Trust.GUEST} else _NEWS
    return "hermes"
