"""Background reviews of a profile: settings and notices."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from hermes.app.build import App, AppOptions, open_app
from hermes.app.maintenance import curate_if_due, propose_merges
from hermes.app.session_notices import MAX_SESSIONS
from hermes.app.turn_services import review_rules
from hermes.config.env import Env
from hermes.config.home import resolve_home
from hermes.config.loader import load_config
from hermes.gateway.messages import outbox_name, read_outbox_message, topic_of
from hermes.learning.review.reviewer import ReviewedTurn
from hermes.learning.review.scheduler import NotificationLevel
from hermes.schema.events import Outcome, RunEnded
from hermes.schema.scope import Address
from hermes.session.conversation import SessionOptions
from hermes.session.turn_request import TurnRequest
from support.turns import user_message

CHAT = Address("fake", "1")


@asynccontextmanager
async def app(path: Path, config: str = "") -> AsyncGenerator[App]:
    path.mkdir(exist_ok=True)
    (path / "config.yaml").write_text(config)
    env = Env({"HERMES_HOME": str(path), "HOME": str(path.parent)})
    choices = AppOptions(workspace=str(path), reviews_turns=True)
    async with open_app(resolve_home(env), env, choices) as opened:
        yield opened


@pytest.mark.parametrize(("steps", "started"), [(1, 0), (9, 0), (10, 1)])
async def test_first_turn_too_short_for_a_review_is_not_read(
    tmp_path: Path, steps: int, started: int
) -> None:
    async with app(tmp_path / "home") as harness:
        session = harness.new_conversation(SessionOptions()).session
        turn = TurnRequest(session=session, message=user_message("hi"), new=True)
        before = asyncio.all_tasks()
        harness.reviews.turn_ended(turn, RunEnded("", Outcome.DONE, steps=steps))
        assert len(asyncio.all_tasks() - before) == started


async def test_notice_to_a_chat_goes_through_the_outbox(tmp_path: Path) -> None:
    async with app(tmp_path / "home") as harness:
        with harness.bus.listen(outbox_name("fake")) as wakeups:
            await harness.reviews.notify(ReviewedTurn(session="s", address=CHAT), "💾 Kept.")
            assert list(wakeups.take()) == [topic_of(CHAT)]
        assert await harness.store.queues.topics(outbox_name("fake")) == [topic_of(CHAT)]
        assert not harness.notices.has_notice("s")


async def test_posted_notice_is_an_outbox_message(tmp_path: Path) -> None:
    async with app(tmp_path / "home") as harness:
        await harness.reviews.notify(ReviewedTurn(session="s", address=CHAT), "💾 Kept.")
        (parcel,) = await harness.store.queues.claim(
            outbox_name("fake"), None, "me", timedelta(days=1)
        )
        assert read_outbox_message(parcel.body).text == "💾 Kept."


async def test_notice_at_a_terminal_is_returned_once(tmp_path: Path) -> None:
    async with app(tmp_path / "home") as harness:
        await harness.reviews.notify(ReviewedTurn(session="s"), "first")
        await harness.reviews.notify(ReviewedTurn(session="s"), "second")
        assert harness.notices.has_notice("s")
        assert harness.notices.take("s") == ["first", "second"]
        assert harness.notices.take("s") == []
        for number in range(MAX_SESSIONS + 5):
            await harness.reviews.notify(ReviewedTurn(session=f"s{number}"), "x")
        assert not harness.notices.has_notice("s0")
        assert harness.notices.has_notice(f"s{MAX_SESSIONS + 4}")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("off", NotificationLevel.OFF),
        ("on", NotificationLevel.ON),
        ("verbose", NotificationLevel.VERBOSE),
        ('"off"', NotificationLevel.OFF),
        ("loud", NotificationLevel.ON),
    ],
)
async def test_review_rules_follow_the_settings(
    tmp_path: Path, written: str, meant: NotificationLevel
) -> None:
    (tmp_path / "config.yaml").write_text(
        f"display:\n  memory_notifications: {written}\n"
        "memory:\n  nudge_interval: 3\nskills:\n  creation_nudge_interval: 4\n"
        "auxiliary:\n  background_review:\n    timeout: 10\n"
    )
    env = Env({"HERMES_HOME": str(tmp_path)})
    rules = review_rules(load_config(resolve_home(env), env).config)
    assert rules.notifications is meant
    assert (rules.intervals.memory, rules.intervals.skills, rules.timeout) == (3, 4, 50)


async def test_unused_skills_are_archived_when_idle(tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder = home / "skills/tea"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: tea\ndescription: Tea.\n---\n\nx\n")
    record = {"created_by": "agent", "created_at": datetime(2020, 1, 1, tzinfo=UTC).isoformat()}
    (home / "skills/.usage.json").write_bytes(msgspec.json.encode({"tea": record}))
    async with app(home, "curator:\n  enabled: false\n") as harness:
        await curate_if_due(harness)
        assert folder.is_dir()
    async with app(home) as harness:
        await curate_if_due(harness)
        assert not folder.exists()
        assert len(list((home / "skills/.archive").iterdir())) == 1


async def test_duplicates_are_proposed_for_removal(tmp_path: Path) -> None:
    home = tmp_path / "home"
    records = {}
    for name in ("tea", "more-tea"):
        folder = home / "skills" / name
        folder.mkdir(parents=True)
        head = f"---\nname: {name}\ndescription: How tea is made.\n---\n\n"
        (folder / "SKILL.md").write_text(f"{head}Boil fresh water and warm the pot.\n")
        records[name] = {"created_by": "agent", "created_at": datetime.now(UTC).isoformat()}
    (home / "skills/.usage.json").write_bytes(msgspec.json.encode(records))
    (home / "memories").mkdir()
    entry = "likes green tea in the morning"
    (home / "memories/USER.md").write_text(f"{entry}\n§\n{entry}, without sugar")
    async with app(home) as harness:
        await propose_merges(harness)
        waiting = await harness.learning.ledger.waiting()
        assert sorted(proposal.kind for proposal in waiting) == ["memory", "skill"]
        await propose_merges(harness)
        assert len(await harness.learning.ledger.waiting()) == 2
        for proposal in waiting:
            await harness.learning.accept(proposal)
        assert (home / "memories/USER.md").read_text() == f"{entry}, without sugar"
        assert len(list((home / "skills/.archive").iterdir())) == 1
