"""What people in chats read when a turn has failed."""

from pathlib import Path

import pytest

from gateways import key_of, lobby
from hermes.gateway.failures import (
    BROKEN,
    BROKEN_OFF,
    BUSY,
    NOT_YOURS,
    SPENT,
    STEPS,
    THERE,
    UNFINISHED,
    for_profile,
    told_of,
)
from hermes.gateway.letters import TurnedAway, Welcome
from hermes.gateway.runs import last_words
from hermes.ports.channel import Inbound
from hermes.schema.errors import LeaseLost, SpendCapReached, Unauthorized, Unreachable, UsageError
from hermes.schema.events import Outcome, RunEnded
from hermes.schema.messages import Trust
from hermes.schema.scope import Role
from workbench import answer

pytestmark = pytest.mark.anyio

WHY = "no connection to openai at http://10.0.0.7:8000/v1. Choose another model: hermes setup"


async def of_bob(inbound: Inbound) -> Welcome | TurnedAway:
    role = Role.MEMBER if inbound.sender == "bob" else Role.OWNER
    return Welcome(key=key_of(inbound), principal=inbound.sender, trust=Trust.GUEST, role=role)


async def test_only_the_owner_reads_what_only_the_owner_can_mend(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with lobby(tmp_path, door=of_bob) as one:
        one.planner.broken = WHY
        await one.channel.say("hello")
        await one.sees(WHY + THERE)
        caplog.clear()
        await one.channel.say("hello", chat="2", sender="bob")
        await one.sees(NOT_YOURS, chat="2")
        await one.calm()
    assert WHY in caplog.text


@pytest.mark.parametrize("role", [Role.MEMBER, Role.GUEST])
def test_others_read_what_they_can_do_themselves(role: Role) -> None:
    assert told_of(Unreachable.code, WHY, role) == BUSY
    assert told_of(UsageError.code, "Say something first.", role) == "Say something first."
    assert told_of(Unauthorized.code, WHY, role) == NOT_YOURS
    assert told_of(SpendCapReached.code, WHY, role) == SPENT
    assert told_of(LeaseLost.code, WHY, role) == BROKEN_OFF
    assert told_of("interrupted", WHY, role) == BROKEN_OFF
    assert told_of("", "", role) == BROKEN


def test_what_names_no_command_is_left_as_it_is() -> None:
    assert told_of("policy", "It was declined.", Role.OWNER) == "It was declined."


def test_a_command_names_the_profile_that_it_is_for() -> None:
    told = (
        "Choose another: hermes setup, or `hermes -z hi`. See hermes profile list, hermes -p a -z x"
    )
    assert for_profile(told, "default") == told
    assert for_profile(told, "work") == (
        "Choose another: hermes -p work setup, or `hermes -p work -z hi`. "
        "See hermes profile list, hermes -p a -z x"
    )


def test_a_limit_tells_others_nothing_of_what_failed_besides() -> None:
    ended = RunEnded("r", Outcome.EXHAUSTED, f"The summary failed: {WHY}", "steps")
    said = [answer("So far.")]
    assert last_words(ended, said, None, Role.GUEST) == f"So far.\n\n{STEPS}"
    assert last_words(ended, said, None) == f"So far.\n\nThe summary failed: {WHY}"


def test_what_is_cut_off_elsewhere_has_reached_no_limit_of_steps() -> None:
    ended = RunEnded("r", Outcome.EXHAUSTED, f"It fell silent: {WHY}", "truncated")
    assert last_words(ended, [answer("So far.")], None, Role.GUEST) == f"So far.\n\n{UNFINISHED}"
