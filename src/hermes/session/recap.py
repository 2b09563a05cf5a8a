"""What was said and done before, for somebody who comes back; also where a turn was cut short."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from hermes.kit.text import one_line
from hermes.schema.attachments import typed_text
from hermes.schema.messages import Assistant, Message, Result, ToolCall, Trust, User, text_of
from hermes.schema.sessions import StoredMessage

INTERRUPTED = "(interrupted before it was answered)"
UNANSWERED = "(not answered)"
FAILED = "(not answered: {reason})"
MAX_ROWS = 400
MAX_BYTES = 4 * 1024 * 1024
"""Messages, and bytes of them, that are read at most to tell the last few in short."""
_LABEL_ARGUMENTS = ("command", "path", "pattern", "query", "url", "goal", "name", "content")
_MAX_LINE = 200


def is_question(row: StoredMessage) -> bool:
    message = row.message
    brought = not row.run and isinstance(message, User) and message.trust is Trust.DATA
    return isinstance(message, User) and message.trust is not Trust.PROGRAM and not brought


def recap(
    rows: Sequence[StoredMessage],
    exchanges: int,
    *,
    going_on: bool = False,
    midway: bool = False,
    ends: Mapping[str, str] | None = None,
) -> list[tuple[str, str]]:
    """The last questions and answers as (who, words).

    What was finished of a turn without an answer, and why it has none, is said by nobody: there
    `who` is empty. With `going_on` the last turn may still have its end, with `midway` the first
    may have begun before these rows; `ends` are the reasons of those that had an end without an
    answer (`hermes.session.run_failures`).
    """
    known = ends or {}
    told = [
        line
        for turn, open_ in _turns(rows, going_on=going_on, midway=midway)
        for line in _turn_lines(turn, _missing_reason(turn, known) if open_ else "")
    ]
    spoken = [place for place, (who, _) in enumerate(told) if who]
    return told[spoken[-2 * exchanges :][0] :] if spoken and exchanges else []


def interrupted_at(
    rows: Sequence[StoredMessage],
    *,
    going_on: bool = False,
    midway: bool = False,
    ends: Collection[str] = (),
) -> frozenset[int]:
    """The places of those messages that are the last of a turn which nobody ended."""
    turns = _turns(rows, going_on=going_on, midway=midway)
    return frozenset(turn[-1].seq for turn, open_ in turns if open_ and _run_of(turn) not in ends)


def _turns(
    rows: Sequence[StoredMessage], *, going_on: bool, midway: bool
) -> list[tuple[list[StoredMessage], bool]]:
    """Each turn, and whether it has no answer."""
    turns: list[list[StoredMessage]] = []
    run = ""
    for row in rows:
        # What has no run was brought, or closes a call of the turn before it.
        if not turns or (row.run and row.run != run):
            turns.append([])
            run = row.run
        turns[-1].append(row)
    open_ = [_is_open(turn, midway=midway and not place) for place, turn in enumerate(turns)]
    cut = [one and _is_abandoned(later) for one, later in zip(open_, turns[1:], strict=False)]
    cut += [not going_on and one for one in open_[-1:]]
    return list(zip(turns, cut, strict=True))


def _is_open(turn: Sequence[StoredMessage], *, midway: bool) -> bool:
    """Whether something was asked in it, or before, to which the last word was never said."""
    messages = [row.message for row in turn if row.run]
    if not messages or not (midway or any(row.run and is_question(row) for row in turn)):
        return False
    last = next((one for one in reversed(messages) if not isinstance(one, Result)), None)
    return not isinstance(last, Assistant) or bool(last.calls)


def _is_abandoned(later: Sequence[StoredMessage]) -> bool:
    """Calls that were handed to the asker are no interruption: their results come next."""
    return not isinstance(later[0].message, Result)


def _run_of(turn: Sequence[StoredMessage]) -> str:
    return next((row.run for row in turn if row.run), "")


def _missing_reason(turn: Sequence[StoredMessage], ends: Mapping[str, str]) -> str:
    """Why there is no answer."""
    reason = ends.get(_run_of(turn))
    if reason is None:
        return INTERRUPTED
    return FAILED.format(reason=one_line(reason, _MAX_LINE)) if reason.strip() else UNANSWERED


def _turn_lines(turn: Sequence[StoredMessage], lack: str) -> Iterator[tuple[str, str]]:
    results = {row.message.call: row.message for row in turn if isinstance(row.message, Result)}
    for row in turn:
        message = row.message
        if is_question(row) or isinstance(message, Assistant):
            words = typed_text(message) if isinstance(message, User) else text_of(message)
            if words.strip():
                yield _speaker(message), words
        if lack and isinstance(message, Assistant):
            done = [(call, results[call.id]) for call in message.calls if call.id in results]
            yield from (("", _call_line(call, result)) for call, result in done)
    if lack:
        yield "", lack


def _call_line(call: ToolCall, result: Result) -> str:
    """A call that came to its end, in one line."""
    try:
        known = msgspec.json.decode(call.args, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        known = {}
    telling = next(
        (known[name] for name in _LABEL_ARGUMENTS if isinstance(known.get(name), str)), ""
    )
    return one_line(f"{'✗' if result.failed else '✓'} {call.name} {telling}", _MAX_LINE)


def _speaker(message: Message) -> str:
    """What came in by itself is nobody's word."""
    if isinstance(message, User):
        return "you" if message.trust in {Trust.OWNER, Trust.GUEST} else "news"
    return "hermes"
