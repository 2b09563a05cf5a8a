"""Two gateway processes on one store leave each other's work alone and recover it once."""

from pathlib import Path

import anyio
from msgspec import structs

from hermes.gateway.command_queue import INTERRUPTED
from hermes.gateway.delivery import RECOVERED_MARK
from hermes.gateway.stale_progress import INTERRUPTED_BY_RESTART
from support.shared_store import TTL, SharedStore, freeze, shared_store, thaw

SLOW = 'q-1 use:terminal {"command": "sleep 6"}'
HANGING = "q-1 hang:model"


async def test_second_gateway_stands_by_and_touches_nothing(tmp_path: Path) -> None:
    """A running turn, its progress message and a delivery go on while another gateway starts."""
    async with shared_store(tmp_path) as shared, shared.gateway(0):
        shared.say(SLOW)
        await shared.until(lambda: bool(shared.posts()))
        shared.server.hold("posts")
        shared.say("q-2", chat="c2")
        await shared.until(lambda: "q-2" in shared.questions)
        async with shared.gateway(1):
            assert (shared.channel_state(0), shared.channel_state(1)) == ("connected", "standby")
            # Long enough for several checks and recoveries of the second gateway.
            await anyio.sleep(TTL)
            shared.server.release("posts")
            await shared.until(lambda: shared.texts("c2") == ["re: q-2"])
            await shared.until(lambda: any("re: q-1" in text for text in shared.texts()))
            (post,) = shared.posts()
            assert not any(INTERRUPTED_BY_RESTART in form for form in post.forms)
            assert shared.questions.count(SLOW) == 2
            shared.say("q-3")
            await shared.until_posted("re: q-3")
        assert not any(RECOVERED_MARK in text for text in (*shared.texts(), *shared.texts("c2")))


async def test_work_of_a_killed_gateway_is_picked_up_once(tmp_path: Path) -> None:
    async with shared_store(tmp_path) as shared:
        async with shared.gateway(0) as first, shared.gateway(1):
            shared.say(HANGING)
            await shared.until(lambda: HANGING in shared.questions)
            first.kill()
            await shared.until(lambda: shared.questions.count(HANGING) == 2)
            await shared.until(lambda: shared.channel_state(1) == "connected")
            shared.say("/stop")
            await shared.until_posted("Stopped.")
            shared.say("q-2")
            await shared.until_posted("re: q-2")
            assert shared.questions.count(HANGING) == 2
        assert_no_repeats(shared)


async def test_frozen_gateway_changes_nothing_when_it_returns(tmp_path: Path) -> None:
    async with (
        shared_store(tmp_path) as shared,
        shared.gateway(0) as first,
        shared.gateway(1),
    ):
        shared.say(SLOW)
        await shared.until(lambda: bool(shared.posts()))
        await freeze(shared, first)
        await shared.until(lambda: any("re: q-1" in text for text in shared.texts()))
        texts = shared.texts()
        changes = len(shared.server.platform.changes)
        thaw(first)
        await shared.until(lambda: shared.channel_state(0) == "standby")
        await anyio.sleep(TTL)
        assert shared.texts() == texts
        assert len(shared.server.platform.changes) == changes
        shared.say("q-2")
        await shared.until_posted("re: q-2")
        assert_no_repeats(shared)


async def test_messages_and_stop_reach_a_turn_of_the_other_gateway(tmp_path: Path) -> None:
    """The first gateway runs the turns; the second one receives and delivers."""
    async with shared_store(tmp_path) as shared:
        config = Path(shared.specs[0].home) / "config.yaml"
        config.write_text(config.read_text().replace("queue", "interrupt"))
        async with shared.gateway(0), shared.gateway(1) as second:
            shared.say(HANGING)
            await shared.until(lambda: HANGING in shared.questions)
            await shared.move_channel(second)
            shared.say("q-2 hang:model")
            await shared.until(lambda: "q-2 hang:model" in shared.questions)
            shared.say("/stop")
            await shared.until_posted("Stopped.")
            shared.say("q-3")
            await shared.until_posted("re: q-3")
            assert len(shared.questions) == 3


async def test_command_of_a_killed_gateway_is_reported_once(tmp_path: Path) -> None:
    async with shared_store(tmp_path) as shared:
        shared.specs[0] = structs.replace(shared.specs[0], die_at="commands.stored")
        async with shared.gateway(0), shared.gateway(1):
            shared.say("/status")
            report = INTERRUPTED.format(line="/status")
            await shared.until_posted(report)
            shared.say("q-1")
            await shared.until_posted("re: q-1")
        assert shared.texts() == [report, "re: q-1"]


async def test_delivery_of_a_frozen_gateway_is_repeated_once_with_a_mark(tmp_path: Path) -> None:
    """The freeze comes between the call and its receipt, which no check can prevent."""
    async with (
        shared_store(tmp_path) as shared,
        shared.gateway(0) as first,
        shared.gateway(1),
    ):
        shared.server.hold("posts")
        shared.say("q-1")
        await shared.until(lambda: shared.server.held("posts") == 1)
        await freeze(shared, first)
        await shared.until(lambda: shared.server.held("posts") == 2)
        shared.server.release("posts")
        await shared.until(lambda: len(shared.posts()) == 2)
        thaw(first)
        await shared.until(lambda: shared.channel_state(0) == "standby")
        shared.say("q-2")
        await shared.until_posted("re: q-2")
        assert sorted(shared.texts()) == ["(recovered) re: q-1", "re: q-1", "re: q-2"]


def assert_no_repeats(shared: SharedStore) -> None:
    answers = [text for text in shared.texts() if "re: " in text]
    assert len(answers) == len(set(answers))
