"""The footer below an answer shows only facts, and only if enabled."""

from pathlib import Path

from hermes.gateway.footer import MAX_FILES, AnswerFooter, failed_file_changes
from hermes.schema.errors import ToolError
from hermes.schema.messages import Message, Usage
from support.gateway import gateway_harness, wait_until
from support.turns import FakeTool, assistant_message, tool_call, tool_result

PATCH = "*** Begin Patch\n*** Update File: a\n*** Delete File: b/../c\n*** End Patch"
FOOTER = ("model", "context_pct", "cwd", "of-another-version")


def tool_attempt(name: str, id: str, *, failed: bool, **args: str) -> list[Message]:  # noqa: A002
    messages = "no such passage\nin it" if failed else "fine"
    return [
        assistant_message(tool_call(name, id=id, **args)),
        tool_result(id, messages, failed=failed),
    ]


def test_unchanged_file_is_listed_with_the_last_reason() -> None:
    messages = [
        *tool_attempt("patch", "1", failed=True, path="notes.txt"),
        *tool_attempt("write_file", "2", failed=False, path="other"),
        *tool_attempt("read_file", "3", failed=True, path="unread"),
    ]
    assert failed_file_changes(messages) == {"notes.txt": "no such passage in it"}
    below = AnswerFooter(show_failed_files=True).text_for(messages)
    assert below == "⚠ notes.txt was not changed: no such passage in it"
    assert AnswerFooter().text_for(messages) == ""


def test_file_changed_by_a_later_call_is_not_listed() -> None:
    messages = [
        *tool_attempt("patch", "1", failed=True, path="./notes.txt"),
        *tool_attempt("write_file", "2", failed=False, path="notes.txt"),
    ]
    assert failed_file_changes(messages) == {}


def test_files_of_a_patch_are_found() -> None:
    assert [*failed_file_changes(tool_attempt("patch", "1", failed=True, patch=PATCH))] == [
        "a",
        "c",
    ]


def test_further_files_are_counted() -> None:
    messages = [
        one
        for n in range(MAX_FILES + 2)
        for one in tool_attempt("write_file", str(n), failed=True, path=str(n))
    ]
    *named, more = AnswerFooter(show_failed_files=True).text_for(messages).splitlines()
    assert (len(named), more) == (MAX_FILES, "⚠ and 2 more")


def test_footer_shows_the_configured_fields() -> None:
    script = AnswerFooter(
        fields=FOOTER, folder="/home/me/work", home="/home/me", window=lambda *_: 1_000
    )
    messages = [
        assistant_message("first"),
        assistant_message("Yes.", usage=Usage(input=400, output=20)),
    ]
    assert script.text_for(messages) == "scripted · 42% · ~/work"
    assert (
        AnswerFooter(fields=("cwd",), folder="/srv", home="/home/me").text_for(messages) == "/srv"
    )
    assert AnswerFooter(fields=("context_pct",)).text_for(messages) == ""


async def test_footer_is_delivered_but_not_in_the_transcript(tmp_path: Path) -> None:
    async def refuses(*_: object) -> str:
        raise ToolError("no such passage")

    tools = [FakeTool("patch", refuses)]
    script = AnswerFooter(show_failed_files=True, fields=("model", "cwd"), folder="/work")
    steps = [assistant_message(tool_call("patch", path="f"))], [assistant_message("Changed f.")]
    async with gateway_harness(tmp_path, *steps, tools=tools, footer=script) as harness:
        await harness.channel.say("change f")
        await wait_until(lambda: len(harness.channel.texts_in("1")) == 1)
        (seen,) = harness.channel.texts_in("1")
        assert seen == "Changed f.\n\n⚠ f was not changed: no such passage\n\nscripted · /work"
        assert (await harness.texts())[-1] == "Changed f."
