"""What stands below an answer: only what is so, and only where it is wished for."""

from pathlib import Path

import pytest

from hermes.gateway.footer import MAX_FILES, AnswerFooter, failed_file_changes
from hermes.schema.errors import ToolError
from hermes.schema.messages import Message, Usage
from support.gateway import gateway_harness, wait_until
from support.turns import FakeTool, assistant_message, tool_call, tool_result

ENVELOPE = "*** Begin Patch\n*** Update File: a\n*** Delete File: b/../c\n*** End Patch"
FOOTER = ("model", "context_pct", "cwd", "of-another-version")


def tried(name: str, id: str, *, failed: bool, **args: str) -> list[Message]:  # noqa: A002
    said = "no such passage\nin it" if failed else "fine"
    return [assistant_message(tool_call(name, id=id, **args)), tool_result(id, said, failed=failed)]


def test_a_file_that_no_call_changed_is_named_with_the_last_reason() -> None:
    said = [
        *tried("patch", "1", failed=True, path="notes.txt"),
        *tried("write_file", "2", failed=False, path="other"),
        *tried("read_file", "3", failed=True, path="unread"),
    ]
    assert failed_file_changes(said) == {"notes.txt": "no such passage in it"}
    below = AnswerFooter(verifies=True).below(said)
    assert below == "⚠ notes.txt was not changed: no such passage in it"
    assert AnswerFooter().below(said) == ""


def test_what_a_later_call_changed_is_changed() -> None:
    said = [
        *tried("patch", "1", failed=True, path="./notes.txt"),
        *tried("write_file", "2", failed=False, path="notes.txt"),
    ]
    assert failed_file_changes(said) == {}


def test_the_files_of_an_envelope_are_its_files() -> None:
    assert [*failed_file_changes(tried("patch", "1", failed=True, patch=ENVELOPE))] == ["a", "c"]


def test_many_are_counted() -> None:
    said = [
        one
        for n in range(MAX_FILES + 2)
        for one in tried("write_file", str(n), failed=True, path=str(n))
    ]
    *named, more = AnswerFooter(verifies=True).below(said).splitlines()
    assert (len(named), more) == (MAX_FILES, "⚠ and 2 more")


def test_the_footer_tells_what_it_is_asked_for() -> None:
    script = AnswerFooter(
        fields=FOOTER, folder="/home/me/work", home="/home/me", window=lambda *_: 1_000
    )
    said = [
        assistant_message("first"),
        assistant_message("Yes.", usage=Usage(input=400, output=20)),
    ]
    assert script.below(said) == "scripted · 42% · ~/work"
    assert AnswerFooter(fields=("cwd",), folder="/srv", home="/home/me").below(said) == "/srv"
    assert AnswerFooter(fields=("context_pct",)).below(said) == ""


@pytest.mark.anyio
async def test_it_stands_below_the_answer_and_not_in_the_transcript(tmp_path: Path) -> None:
    async def refuses(*_: object) -> str:
        raise ToolError("no such passage")

    tools = [FakeTool("patch", refuses)]
    script = AnswerFooter(verifies=True, fields=("model", "cwd"), folder="/work")
    steps = [assistant_message(tool_call("patch", path="f"))], [assistant_message("Changed f.")]
    async with gateway_harness(tmp_path, *steps, tools=tools, postscript=script) as one:
        await one.channel.say("change f")
        await wait_until(lambda: len(one.channel.texts_in("1")) == 1)
        (seen,) = one.channel.texts_in("1")
        assert seen == "Changed f.\n\n⚠ f was not changed: no such passage\n\nscripted · /work"
        assert (await one.texts())[-1] == "Changed f."
