"""A question survives the process that asked it: posted, answered and acted on once."""

import json
import re
from pathlib import Path

import anyio
import pytest

from hermes.gateway.delivery import RECOVERED_MARK
from support.chat_platform.state import PlatformPost
from support.failpoints import failpoints
from support.restarted_gateway import RestartedGateway, restarted_gateway

UNDECIDED = "Nothing decided"
ID = re.compile(r"For example: /approve (\w+)")
COLOUR = 'q-1 use:clarify {"question": "Which colour?", "choices": ["red", "blue"]}'
STOP_LIMIT = 40.0
"""Seconds in which a gateway must end that gives turns sixty, if it does not wait for one."""


def approval_request(note: Path, name: str) -> str:
    args = f'{{"command": "echo {name} >> {note}", "escalate": "outside", "reason": "It is mine."}}'
    return f"{name} use:terminal {args}"


def done_in(note: Path) -> list[str]:
    return note.read_text().splitlines() if note.exists() else []


def response(reply: PlatformPost) -> str:
    """Return the result of the tool, which the model repeats."""
    return json.loads(reply.text.splitlines()[1])["user_response"]


def questions(chat: RestartedGateway, words: str, where: str = "c1") -> list[PlatformPost]:
    """Return the questions; a post with an unknown outcome is repeated with a mark."""
    others = (RECOVERED_MARK, "re: ", "Allowed")
    return [one for one in chat.posts(words, where) if not one.text.startswith(others)]


async def answer(
    chat: RestartedGateway, word: str, to: PlatformPost | None, where: str = "c1"
) -> None:
    """Answer like a person: by the id if the gateway cannot know what the reply refers to."""
    chat.say(word, chat=where, to=to)
    await chat.until(lambda: bool(chat.posts("re: q-", where) or chat.posts(UNDECIDED, where)))
    for reply in chat.posts(UNDECIDED, where):
        name = ID.search(reply.text)
        assert name, reply
        chat.say(f"{word} {name[1]}", chat=where)


@pytest.mark.parametrize(("word", "is_reply", "effects"), [("yes", False, 1), ("/deny", True, 0)])
async def test_answer_after_kill(
    tmp_path: Path, word: str, *, is_reply: bool, effects: int
) -> None:
    note = tmp_path / "note"
    async with restarted_gateway(tmp_path) as chat:
        async with chat.run():
            chat.say(approval_request(note, "q-1"))
            post = await chat.wait_for_post("/approve")
        async with chat.run():
            await answer(chat, word, post if is_reply else None)
            reply = await chat.wait_for_post("re: q-1")
        assert len(questions(chat, "Run this command")) == 1
    assert done_in(note) == ["q-1"] * effects
    # The model made its call once and got the result.
    assert chat.questions == [approval_request(note, "q-1")] * 2
    assert "outcome is unknown" not in reply.text
    assert ("A person allowed it" in reply.text) is bool(effects)


async def test_text_after_kill_answers_the_open_question(tmp_path: Path) -> None:
    async with restarted_gateway(tmp_path) as chat:
        async with chat.run():
            chat.say(COLOUR)
            await chat.wait_for_post("Which colour?")
        async with chat.run() as instance:
            await instance.wait_ready()
            chat.say("please also buy milk")
            reply = await chat.wait_for_post("re: q-1")
        assert len(questions(chat, "Which colour?")) == 1
    assert response(reply) == "please also buy milk"
    assert chat.questions == [COLOUR] * 2


async def test_message_sent_while_down_is_received(tmp_path: Path) -> None:
    """It arrives during the resumed turn, before or after the question is repeated."""
    async with restarted_gateway(tmp_path) as chat:
        async with chat.run():
            chat.say(COLOUR)
            await chat.wait_for_post("Which colour?")
        chat.say("2")
        async with chat.run():
            reply = await chat.wait_for_post("re: q-1")
    assert response(reply) == "blue"


async def test_other_message_ends_the_approval_request(tmp_path: Path) -> None:
    note = tmp_path / "note"
    async with restarted_gateway(tmp_path) as chat:
        settings = tmp_path / "home" / "config.yaml"
        settings.write_text(settings.read_text().replace("queue", "interrupt"))
        async with chat.run():
            chat.say(approval_request(note, "q-1"))
            await chat.wait_for_post("/approve")
        # Before or after the question is repeated.
        chat.say("q-2 and something else")
        async with chat.run():
            await chat.wait_for_post("re: q-2")
            chat.say("/approve")
            await chat.wait_for_post("Too late")
    assert done_in(note) == []


async def test_shutdown_does_not_wait_for_an_answer(tmp_path: Path) -> None:
    note = tmp_path / "note"
    async with restarted_gateway(tmp_path) as chat:
        async with chat.run() as instance:
            chat.say(COLOUR)
            chat.say(approval_request(note, "q-2"), chat="c2")
            await chat.wait_for_post("Which colour?")
            await chat.wait_for_post("Run this command", "c2")
            with anyio.fail_after(STOP_LIMIT):
                instance.end()
                await instance.process.wait()
        async with chat.run():
            chat.say("1")
            chat.say("yes", chat="c2")
            reply = [await chat.wait_for_post("re: q-1"), await chat.wait_for_post("re: q-2", "c2")]
        # The progress message does not say that there was an answer.
        assert not chat.posts("The answer is below", "c2")[:-1]
        question = questions(chat, "Which colour?") + questions(chat, "Run this command", "c2")
        assert len(question) == 2
    assert sorted(chat.questions) == sorted([COLOUR, approval_request(note, "q-2")] * 2)
    assert done_in(note) == ["q-2"]
    assert response(reply[0]) == "red"
    assert "nterrupted" not in reply[1].text


async def test_stop_closes_the_question(tmp_path: Path) -> None:
    async with restarted_gateway(tmp_path) as chat:
        async with chat.run():
            chat.say(COLOUR)
            await chat.wait_for_post("Which colour?")
        chat.say("/stop")
        async with chat.run():
            await chat.wait_for_post("topped")
            chat.say("q-2 please also buy milk")
            await chat.wait_for_post("re: q-2")
    assert not chat.posts("re: q-1")


async def test_kill_at_any_point_around_a_question(tmp_path: Path) -> None:
    """Each kill a little further; once the answer was taken, the outcome is unknown."""
    note = tmp_path / "note"
    places = ["approvals.asked", "approvals.before_expecting"]
    after = ["approvals.before_used", "approvals.used"]
    known = {name for name, file in failpoints().items() if file.startswith("approvals/")}
    assert known == {*places, *after}
    async with restarted_gateway(tmp_path) as chat:
        chat.say(approval_request(note, "q-1"))
        for failpoint in places:
            await chat.crash_at(failpoint)
        async with chat.run():
            await chat.wait_for_post("Run this command")
        chat.say("yes")
        for failpoint in after:
            await chat.crash_at(failpoint)
        async with chat.run():
            reply = await chat.wait_for_post("re: q-1")
        assert len(questions(chat, "Run this command")) == 1
    assert done_in(note) == []
    assert "outcome is unknown" in reply.text


async def test_reply_answers_the_older_question(tmp_path: Path) -> None:
    """Two questions in two threads, asked of the same owner."""
    async with restarted_gateway(tmp_path) as chat, chat.run():
        first, second = tmp_path / "first", tmp_path / "second"
        chat.say(approval_request(first, "q-1"), chat="c1")
        chat.say(approval_request(second, "q-2"), chat="c2")
        older = await chat.wait_for_post("/approve", "c1")
        newer = await chat.wait_for_post("/approve", "c2")
        await answer(chat, "no", newer, "c2")
        await chat.wait_for_post("re: q-2", "c2")
        await answer(chat, "yes", older, "c1")
        await chat.wait_for_post("re: q-1", "c1")
        assert done_in(first) == ["q-1"]
        assert not second.exists()
