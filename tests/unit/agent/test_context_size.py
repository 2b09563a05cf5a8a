"""Compaction thresholds, budgets and token estimates."""

from typing import Any

from hermes.agent.history import (
    CompactionLimits,
    History,
    compaction_threshold,
    message_tokens,
    min_tail_messages,
    summary_budget,
    tail_budget,
)
from hermes.agent.plan import CompactionNeed
from hermes.ports.tool import ToolContext
from hermes.schema.messages import Media, Text, Usage, User
from hermes.testing.scripted_model import answer_script
from support.cases import cases
from support.turns import (
    FakeTool,
    assistant_message,
    run_scripted_turn,
    tool_call,
    user_message,
)


@cases(
    ("window", "output", "expected"),
    [
        (1_000_000, 0, 500_000),
        (200_000, 0, 150_000),
        (200_000, 40_000, 120_000),
        (128_000, 0, 96_000),
        (80_000, 0, 64_000),
        (64_000, 0, 54_400),
        (32_768, 0, 27_852),
    ],
)
def test_threshold_depends_on_the_window(window: int, output: int, expected: int) -> None:
    assert compaction_threshold(CompactionLimits(max_output=output), window) == expected


def test_higher_threshold_setting_applies() -> None:
    assert compaction_threshold(CompactionLimits(threshold=0.8), 200_000) == 160_000
    assert compaction_threshold(CompactionLimits(threshold=0.8), 1_000_000) == 800_000


def test_recent_gpt_models_on_codex_get_a_higher_threshold() -> None:
    assert compaction_threshold(CompactionLimits(), 400_000, "gpt-5.5", "openai-codex") == 340_000
    assert compaction_threshold(CompactionLimits(), 400_000, "gpt-5.5", "openai") == 300_000
    assert (
        compaction_threshold(
            CompactionLimits(codex_raise=False), 400_000, "gpt-5.5", "openai-codex"
        )
        == 300_000
    )


def test_budgets() -> None:
    assert tail_budget(CompactionLimits(), 150_000) == 30_000
    assert [min_tail_messages(CompactionLimits(keep_last=last)) for last in (0, 5, 20)] == [3, 5, 8]
    sizes = [(5_000, 200_000), (30_000, 200_000), (500_000, 1_000_000), (500_000, 100_000)]
    assert [summary_budget(*size) for size in sizes] == [2_000, 6_000, 10_000, 5_000]


def test_message_tokens_count_every_part() -> None:
    assert message_tokens(user_message("x" * 400)) == 108
    assert message_tokens(assistant_message(tool_call("look", at="y" * 400))) > 100
    assert message_tokens(User("m", (Media("0" * 64, "image/png"), Text("see")))) > 1_500


async def test_window_use_is_the_provider_count_and_an_estimate_of_what_came_since() -> None:
    needs: list[int] = []

    async def compact(history: History, need: CompactionNeed) -> str | None:
        needs.append(need.tokens)
        return "Be brief." if len(needs) == 3 else None

    async def look(_: dict[str, Any], __: ToolContext) -> str:
        return "x" * 400

    await run_scripted_turn(
        [assistant_message(tool_call("look", at=1), usage=Usage(input=5_000, output=100))],
        [assistant_message(tool_call("look", at=2))],
        [assistant_message(tool_call("look", at=3))],
        answer_script("Fine."),
        tools=[FakeTool("look", look)],
        compact=compact,
        max_tokens=0,
    )
    estimated, counted, uncounted, compacted = needs
    assert counted == 5_100 + 401 // 4
    call = len('{"at":1}') + 1
    assert uncounted == 5_100 + (2 * 401 + call) // 4
    everything = 6 + 3 * (401 + call)
    assert compacted == estimated - 6 // 4 + everything // 4


async def compactions(**limits: int) -> int:
    """Return how often a turn with two steps asks to be compacted."""
    needs: list[CompactionNeed] = []

    async def compact(history: History, need: CompactionNeed) -> str | None:
        needs.append(need)
        return None

    script = [assistant_message(tool_call("look"))], answer_script("Fine.")
    await run_scripted_turn(*script, tools=[FakeTool("look")], compact=compact, **limits)
    return len(needs)


async def test_history_is_compacted_from_its_limits_on() -> None:
    assert await compactions() == 0
    assert await compactions(max_tokens=1_000_000, max_messages=4) == 0
    assert await compactions(max_messages=3) == 1
    assert await compactions(max_tokens=1) == 2
