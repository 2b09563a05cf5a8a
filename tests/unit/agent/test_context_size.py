"""Compaction thresholds, budgets and token estimates."""

from hermes.agent.history import (
    CompactionLimits,
    TokenGauge,
    compaction_threshold,
    message_tokens,
    min_tail_messages,
    summary_budget,
    tail_budget,
)
from hermes.schema.messages import Media, Text, Usage, User
from support.cases import cases
from support.turns import assistant_message, tool_call, user_message


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


def test_token_gauge_adds_an_estimate_to_the_provider_count() -> None:
    gauge = TokenGauge(1_000)
    assert gauge.tokens(4_000) == 2_000
    gauge.set_count(Usage(input=5_000, output=100), 4_400)
    assert gauge.tokens(4_400) == 5_100
    assert gauge.tokens(8_400) == 6_100
    gauge.set_count(Usage(), 9_000)
    assert gauge.tokens(8_400) == 6_100
    gauge.reset(900)
    assert gauge.tokens(400) == 1_000
