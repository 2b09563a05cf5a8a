"""When it is time to look back: counted in what the person said and what the agent did."""

from collections.abc import Sequence

from msgspec import Struct

from hermes.schema.messages import Assistant, Message, Trust, User
from hermes.schema.sessions import StoredMessage

SKILL_TOOL = "skill_manage"


class ReviewIntervals(Struct, frozen=True, kw_only=True):
    """Memory after so many turns of the person, skills after so many steps; 0 is never."""

    memory: int = 10
    skills: int = 10


class DueReviews(Struct, frozen=True, kw_only=True):
    memory: bool = False
    skills: bool = False

    def __bool__(self) -> bool:
        return self.memory or self.skills


class ReviewTriggers:
    """The two counters of one session. What is due begins again at nothing.

    They are nowhere on disk: `replayed` gets them from the transcript, turn by turn.
    """

    def __init__(self, intervals: ReviewIntervals, turns: int = 0, iterations: int = 0) -> None:
        self.intervals = intervals
        self.turns = turns
        self.iterations = iterations

    def count_turn(self) -> None:
        """Once for each turn of the person."""
        self.turns += 1

    def worked(self, iterations: int = 1) -> None:
        """Steps in which tools were called."""
        self.iterations += iterations

    def reset_skills(self) -> None:
        self.iterations = 0

    def due(self, *, memory: bool = True, skills: bool = True) -> DueReviews:
        """At the end of a turn, for what the turn had the tools for."""
        found = DueReviews(
            memory=memory and 0 < self.intervals.memory <= self.turns,
            skills=skills and 0 < self.intervals.skills <= self.iterations,
        )
        if found.memory:
            self.turns = 0
        if found.skills:
            self.iterations = 0
        return found

    def take(self, said: Sequence[Message]) -> None:
        """All messages of one turn."""
        if any(isinstance(one, User) and one.trust is not Trust.PROGRAM for one in said):
            self.count_turn()
        for answer in said:
            if not isinstance(answer, Assistant) or not answer.calls:
                continue
            self.worked()
            if any(call.name == SKILL_TOOL for call in answer.calls):
                self.reset_skills()


def messages_by_turn(rows: Sequence[StoredMessage]) -> list[list[Message]]:
    """The messages of each run; what was brought in between belongs to none."""
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
    nudges: ReviewTriggers,
    rows: Sequence[StoredMessage],
    *,
    memory: bool = True,
    skills: bool = True,
) -> list[DueReviews]:
    """Count on; what was due at the end of each of these turns."""
    found: list[DueReviews] = []
    for said in messages_by_turn(rows):
        nudges.take(said)
        found.append(nudges.due(memory=memory, skills=skills))
    return found
