"""Decide when a review is due, by counting user turns and tool steps."""

from collections.abc import Sequence

from msgspec import Struct

from hermes.schema.messages import Assistant, Message, Trust, User
from hermes.schema.sessions import StoredMessage

SKILL_TOOL = "skill_manage"


class ReviewIntervals(Struct, frozen=True, kw_only=True):
    """Review memory after so many user turns, skills after so many steps; 0 means never."""

    memory: int = 10
    skills: int = 10


class DueReviews(Struct, frozen=True, kw_only=True):
    memory: bool = False
    skills: bool = False

    def __bool__(self) -> bool:
        return self.memory or self.skills


class ReviewTriggers:
    """The two counters of one session, reset when a review is due.

    They are not stored: `replay_triggers` recomputes them from the transcript, turn by turn.
    """

    def __init__(self, intervals: ReviewIntervals, turns: int = 0, iterations: int = 0) -> None:
        self.intervals = intervals
        self.turns = turns
        self.iterations = iterations

    def count_turn(self) -> None:
        self.turns += 1

    def count_steps(self, iterations: int = 1) -> None:
        """Count steps in which tools were called."""
        self.iterations += iterations

    def reset_skills(self) -> None:
        self.iterations = 0

    def due(self, *, memory: bool = True, skills: bool = True) -> DueReviews:
        """Return the reviews that are due at the end of a turn, given its tools."""
        found = DueReviews(
            memory=memory and 0 < self.intervals.memory <= self.turns,
            skills=skills and 0 < self.intervals.skills <= self.iterations,
        )
        if found.memory:
            self.turns = 0
        if found.skills:
            self.iterations = 0
        return found

    def count_messages(self, messages: Sequence[Message]) -> None:
        if any(
            isinstance(message, User) and message.trust is not Trust.PROGRAM for message in messages
        ):
            self.count_turn()
        for answer in messages:
            if not isinstance(answer, Assistant) or not answer.calls:
                continue
            self.count_steps()
            if any(call.name == SKILL_TOOL for call in answer.calls):
                self.reset_skills()


def messages_by_turn(rows: Sequence[StoredMessage]) -> list[list[Message]]:
    """The messages of each run; those in between belong to none."""
    turns: list[list[Message]] = []
    last = ""
    for row in rows:
        if not row.run:
            continue
        if row.run != last:
            turns.append([])
            last = row.run
        turns[-1].append(row.message)
    return turns


def replay_triggers(
    triggers: ReviewTriggers,
    rows: Sequence[StoredMessage],
    *,
    memory: bool = True,
    skills: bool = True,
) -> list[DueReviews]:
    """Count these turns, and return what was due at the end of each."""
    found: list[DueReviews] = []
    for messages in messages_by_turn(rows):
        triggers.count_messages(messages)
        found.append(triggers.due(memory=memory, skills=skills))
    return found
