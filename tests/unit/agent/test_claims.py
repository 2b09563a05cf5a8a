"""Answers that say files were changed when none was."""

import pytest

from hermes.agent.answers import NOTHING_CHANGED, claims_change
from hermes.ports.model import OutputConstraints, OutputFormat
from hermes.schema.events import TextDelta
from hermes.schema.tools import Effect
from hermes.testing.scripted_model import answer_script
from support.cases import cases
from support.turns import FakeTool, assistant_message, run_scripted_turn, tool_call

CLAIMS = [
    "I fixed the test.",
    "Fixed.",
    "I've fixed the bug in calc.py. All tests pass.",
    "Done! I have updated the file.",
    "The test has been fixed.",
    "test_calc.py is now fixed",
    "I deleted test_calc.py",
]
OTHERS = [
    "I have not changed any file.",
    "I didn't fix the test.",
    "I could not find the file, so nothing was changed.",
    "I added 2 and 2: it is 4.",
    "To fix the test, change line 3.",
    "I've fixed the function:\n```py\nx = 1\n```",
    "The file was created in 2019.",
    "Here is the list of files.",
    "",
]


@cases("text", CLAIMS)
def test_claim_is_recognised(text: str) -> None:
    assert claims_change(text)


@cases("text", OTHERS)
def test_other_answer_does_not_claim_a_change(text: str) -> None:
    assert not claims_change(text)


FIXED = "I fixed the test in calc.py."


def editing_tool() -> FakeTool:
    return FakeTool("terminal", effect=Effect.OUTSIDE, changes_files=True)


async def test_false_claim_gets_a_note_in_the_stream_and_the_transcript() -> None:
    _, recorder = await run_scripted_turn(answer_script(FIXED), tools=[editing_tool()])
    assert recorder.texts[-1] == f"{FIXED}\n\n({NOTHING_CHANGED})"
    streamed = "".join(one.text for one in recorder.events if isinstance(one, TextDelta))
    assert streamed == recorder.texts[-1]


@pytest.mark.parametrize(("changed", "noted"), [(True, False), (False, True), (None, False)])
async def test_claim_after_a_command_is_compared_with_the_files(
    changed: bool | None, noted: bool
) -> None:
    async def files_changed() -> bool | None:
        return changed

    _, recorder = await run_scripted_turn(
        [assistant_message(tool_call("terminal"))],
        answer_script(FIXED),
        tools=[editing_tool()],
        files_changed=files_changed,
    )
    assert (NOTHING_CHANGED in recorder.texts[-1]) is noted


async def test_claims_that_cannot_be_judged_get_no_note() -> None:
    other = FakeTool("memory", effect=Effect.WRITE)
    calls = [assistant_message(tool_call("memory"))]
    runs = [
        await run_scripted_turn(answer_script(FIXED)),
        await run_scripted_turn(calls, answer_script(FIXED), tools=[other, editing_tool()]),
        await run_scripted_turn(
            answer_script(FIXED),
            tools=[editing_tool()],
            constraints=OutputConstraints(format=OutputFormat()),
        ),
    ]
    assert [recorder.texts[-1] for _, recorder in runs] == [FIXED] * 3
