"""`/context`, `/compress`, `/pin` and `/insights`."""

from datetime import timedelta
from pathlib import Path

import pytest

from hermes.compaction.service import CompactionOptions
from hermes.ports.store import AppendMessage, OpenSession, RecordUsage
from hermes.schema.errors import UsageError
from hermes.schema.messages import Usage
from hermes.schema.sessions import Session
from hermes.testing.scripted_model import answer_script
from support.slash_commands import command_harness
from support.turns import user_message


async def test_context_shows_usage_as_a_bar(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("Hello.")) as harness:
        with pytest.raises(UsageError, match="conversation is empty"):
            await harness.run("/context")
        await harness.conversation.submit("hi")
        lines = (await harness.run_text("/context")).splitlines()
        assert lines[0] == "  [█▓▞▞▞■■■■■■■■■··························]"
        assert lines[1] == "  about 12,800 of 40,000 tokens (32%); compacted at 34,000"
        assert lines[-2].split() == ["■", "history", "9,000"]
        assert lines[-1] == "  compacted 2 times so far, $0.0100"


async def test_compress_accepts_options(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("Hello.")) as harness:
        await harness.conversation.submit("hi")
        text = await harness.run_text("/compress the colours")
        assert text.startswith("Summarized 40 messages: about 30,000 tokens became 8,000.")
        assert "Nothing was changed" in await harness.run_text("/compress here 3 names --preview")
        await harness.run_text("/compress here")
        assert harness.fake_services.window.requests == [
            CompactionOptions(focus="the colours"),
            CompactionOptions(turns=3, focus="names"),
            CompactionOptions(turns=1),
        ]
        with pytest.raises(UsageError, match="number of turns"):
            await harness.run("/compress here now")


async def test_pins(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("Hello.")) as harness:
        await harness.conversation.submit("hi")
        assert "Nothing is pinned" in await harness.run_text("/pin")
        await harness.run_text("/pin Never push.")
        assert await harness.run_text("/pin") == "  1  Never push."
        assert await harness.run_text("/unpin 1") == "Unpinned: Never push."
        with pytest.raises(UsageError, match="number of a pin"):
            await harness.run("/unpin it")


async def test_insights_chart_usage_by_day(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("Hello.")) as harness:
        now = harness.conversation.conversation.now()
        for number in range(3):
            then = now - timedelta(days=number)
            session = Session(id=f"s{number}", started_at=then)
            usage = Usage(input=1_000 * (number + 1), output=10)
            await harness.conversation.store.commit(
                OpenSession(session),
                AppendMessage(session.id, "", user_message(), then),
                RecordUsage(session.id, "", "m", "p", usage, 0.5, then),
            )
        lines = (await harness.run_text("/insights")).splitlines()
        assert lines[1].split("  ")[1] == "model"
        assert lines[2].split() == ["p/m", "3", "6,000", "0", "30", "$1.5000"]
        assert [lines[1].index(" out") + 4, lines[1].rindex("t") + 1] == [
            lines[2].index(" 30") + 3,
            len(lines[2]),
        ]
        assert lines[3] == "Total: 3 calls, 6,000 tokens in, 30 out, $1.5000"
        assert lines[-4] == "Tokens by day:"
        bars = [line.count("█") for line in lines[-3:]]
        assert bars == sorted(bars, reverse=True)
        assert bars[0] == 40
        assert lines[-1].split()[-4:] == ["1,010", "$0.5000", "1", "session"]
