"""In a shared session, no one gets a system prompt that was built for someone else."""

from pathlib import Path

import pytest
from msgspec import structs

from hermes.compaction.service import CompactionOptions
from hermes.kit.ids import new_id
from hermes.schema.events import Event
from hermes.schema.messages import Text, Trust, User
from hermes.schema.scope import OWNER, Role
from hermes.schema.sessions import Session
from hermes.session.turn_request import TurnRequest
from hermes.testing.fake_openai import Reply, Script
from support.api_server import ApiHarness, api_harness
from support.conversation import run_turn

MEMORY = "The owner was born in Oslo"
GUEST = "telegram:5"


async def no_answer(event: Event) -> None:
    """What is said is looked for in the requests."""


async def say(harness: ApiHarness, session: Session, role: Role, *, new: bool = False) -> str:
    """The system prompt that the model got."""
    own = role is Role.OWNER
    message = User(new_id("msg"), (Text("word " * 200),), Trust.OWNER if own else Trust.GUEST)
    turn = TurnRequest(
        session=session,
        message=message,
        new=new,
        role=role,
        principal=OWNER if own else GUEST,
    )
    await run_turn(harness.app.runner, turn)
    return str(harness.model_request(-1)["messages"][0]["content"])


async def fresh(harness: ApiHarness, principal: str) -> Session:
    started = harness.app.clock.now()
    return Session(id=new_id("s"), started_at=started, principal=principal, key="agent:shared")


async def again(harness: ApiHarness, session: Session) -> Session:
    return await harness.app.store.archive_for(OWNER).get(session.id)


def remember(home: Path) -> None:
    (home / "memories").mkdir()
    (home / "memories" / "USER.md").write_text(MEMORY)


@pytest.mark.parametrize("principal", [OWNER, GUEST])
async def test_owner_memory_is_only_in_turns_of_the_owner(tmp_path: Path, principal: str) -> None:
    remember(tmp_path)
    async with api_harness(tmp_path, Script(default=Reply("Well."))) as harness:
        session = await fresh(harness, principal)
        first = Role.OWNER if principal == OWNER else Role.GUEST
        await say(harness, session, first, new=True)
        for role in (Role.OWNER, Role.GUEST, Role.OWNER, Role.GUEST):
            prompt = await say(harness, await again(harness, session), role)
            assert (MEMORY in prompt) is (role is Role.OWNER)


async def test_compaction_does_not_give_a_guest_the_owner_memory(tmp_path: Path) -> None:
    remember(tmp_path)
    async with api_harness(tmp_path, Script(default=Reply("Well."))) as harness:
        session = structs.replace(await fresh(harness, GUEST), key="")
        await say(harness, session, Role.GUEST, new=True)
        for _ in range(11):
            await say(harness, await again(harness, session), Role.GUEST)
        done = await harness.app.runner.compact(
            await again(harness, session), CompactionOptions(turns=1)
        )
        assert done.messages
        assert MEMORY not in await say(harness, await again(harness, session), Role.GUEST)
