"""A question outlives the process that asked it: posted once, answered once, done once."""

import re
from pathlib import Path

import pytest

from hermes.gateway.delivery import MARK
from hermes.testing.platform.truth import Shown
from lived import Lived, lived

pytestmark = pytest.mark.anyio
UNDECIDED = "Nothing was decided"
ID = re.compile(r"For example: /approve (\w+)")


def wishes(note: Path, name: str) -> str:
    """What a call came to that was cut off is unknown, so it is made a second time."""
    args = f'{{"command": "echo {name} >> {note}", "escalate": "outside", "reason": "It is mine."}}'
    return f"{name} use:terminal use:terminal {args}"


async def answer(chat: Lived, word: str, to: Shown | None, where: str = "c1") -> None:
    """As a person would: where the gateway cannot know what the reply is to, by the id."""
    chat.say(word, chat=where, to=to)
    await chat.until(lambda: bool(chat.posts("re: q-", where) or chat.posts(UNDECIDED, where)))
    for told in chat.posts(UNDECIDED, where):
        name = ID.search(told.text)
        assert name, told
        chat.say(f"{word} {name[1]}", chat=where)


@pytest.mark.parametrize(
    ("word", "is_reply", "effects"),
    [("yes", True, 1), ("yes", False, 1), ("/approve always", False, 1), ("/deny", True, 0)],
)
async def test_an_answer_after_kill_9(
    tmp_path: Path, word: str, *, is_reply: bool, effects: int
) -> None:
    note = tmp_path / "note"
    async with lived(tmp_path) as chat:
        async with chat.life():
            chat.say(wishes(note, "q-1"))
            post = await chat.sees("/approve")
        async with chat.life():
            await chat.is_asked(wishes(note, "q-1"), 2)
            await answer(chat, word, post if is_reply else None)
            await chat.sees("re: q-1")
        # Where it is not known whether a post arrived it comes again, and says so.
        questions = [one for one in chat.posts("May I run") if not one.text.startswith(MARK)]
        assert len(questions) == 1
    done = note.read_text().splitlines() if note.exists() else []
    assert done == ["q-1"] * effects


async def test_a_reply_answers_the_older_of_two(tmp_path: Path) -> None:
    """One in each of two threads of work, asked of the same owner."""
    async with lived(tmp_path) as chat, chat.life():
        first, second = tmp_path / "first", tmp_path / "second"
        chat.say(wishes(first, "q-1").replace("use:terminal ", "", 1), chat="c1")
        chat.say(wishes(second, "q-2").replace("use:terminal ", "", 1), chat="c2")
        older = await chat.sees("/approve", "c1")
        newer = await chat.sees("/approve", "c2")
        await answer(chat, "no", newer, "c2")
        await chat.sees("re: q-2", "c2")
        await answer(chat, "yes", older, "c1")
        await chat.sees("re: q-1", "c1")
        assert first.read_text().split() == ["q-1"]
        assert not second.exists()
