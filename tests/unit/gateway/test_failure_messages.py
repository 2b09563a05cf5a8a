"""What users in chats see when a turn has failed."""

from pathlib import Path

import pytest

from hermes.gateway.failure_messages import (
    INTERNAL_ERROR,
    INTERRUPTED,
    MODEL_UNREACHABLE,
    OWNER_MUST_FIX,
    SHELL_NOTE,
    SPEND_LIMIT_REACHED,
    STEP_LIMIT_REACHED,
    UNFINISHED,
    failure_message,
    with_profile_flag,
)
from hermes.gateway.messages import Admitted, Rejected
from hermes.gateway.replies import final_reply_text
from hermes.ports.channel import Inbound
from hermes.schema.errors import LeaseLost, SpendCapReached, Unauthorized, Unreachable, UsageError
from hermes.schema.events import Outcome, RunEnded
from hermes.schema.messages import Trust
from hermes.schema.scope import Role
from support.gateway import gateway_harness, session_key_of
from support.turns import assistant_message

ERROR = "no connection to openai at http://10.0.0.7:8000/v1. Choose another model: hermes setup"


async def admit_bob(inbound: Inbound) -> Admitted | Rejected:
    role = Role.MEMBER if inbound.sender == "bob" else Role.OWNER
    return Admitted(
        key=session_key_of(inbound), principal=inbound.sender, trust=Trust.GUEST, role=role
    )


async def test_only_owner_sees_the_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with gateway_harness(tmp_path, authorize=admit_bob) as harness:
        harness.planner.broken = ERROR
        await harness.channel.say("hello")
        await harness.wait_for_posts(ERROR + SHELL_NOTE)
        caplog.clear()
        await harness.channel.say("hello", chat="2", sender="bob")
        await harness.wait_for_posts(OWNER_MUST_FIX, chat="2")
        await harness.wait_until_idle()
    assert ERROR in caplog.text


@pytest.mark.parametrize("role", [Role.MEMBER, Role.GUEST])
def test_others_get_a_general_message(role: Role) -> None:
    assert failure_message(Unreachable.code, ERROR, role) == MODEL_UNREACHABLE
    assert (
        failure_message(UsageError.code, "Send a message first.", role) == "Send a message first."
    )
    assert failure_message(Unauthorized.code, ERROR, role) == OWNER_MUST_FIX
    assert failure_message(SpendCapReached.code, ERROR, role) == SPEND_LIMIT_REACHED
    assert failure_message(LeaseLost.code, ERROR, role) == INTERRUPTED
    assert failure_message("interrupted", ERROR, role) == INTERRUPTED
    assert failure_message("", "", role) == INTERNAL_ERROR


def test_text_without_command_is_unchanged() -> None:
    assert failure_message("policy", "It was declined.", Role.OWNER) == "It was declined."


def test_command_gets_the_profile_flag() -> None:
    reply = (
        "Choose another: hermes setup, or `hermes -z hi`. See hermes profile list, hermes -p a -z x"
    )
    assert with_profile_flag(reply, "default") == reply
    assert with_profile_flag(reply, "work") == (
        "Choose another: hermes -p work setup, or `hermes -p work -z hi`. "
        "See hermes profile list, hermes -p a -z x"
    )


def test_limit_message_hides_details_from_others() -> None:
    ended = RunEnded("r", Outcome.EXHAUSTED, f"The summary failed: {ERROR}", "steps")
    messages = [assistant_message("So far.")]
    assert final_reply_text(ended, messages, None, Role.GUEST) == f"So far.\n\n{STEP_LIMIT_REACHED}"
    assert final_reply_text(ended, messages, None) == f"So far.\n\nThe summary failed: {ERROR}"


def test_other_limits_are_not_reported_as_step_limit() -> None:
    ended = RunEnded("r", Outcome.EXHAUSTED, f"It fell silent: {ERROR}", "truncated")
    assert (
        final_reply_text(ended, [assistant_message("So far.")], None, Role.GUEST)
        == f"So far.\n\n{UNFINISHED}"
    )
