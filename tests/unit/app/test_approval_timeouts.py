"""How long an approval can be answered in the chats of a platform."""

from pathlib import Path

import anyio
import pytest
from msgspec import structs

from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.schema.events import Event, QuestionAsked
from hermes.schema.scope import Address
from support.app_profile import make_scope, open_profile

REQUEST = ApprovalRequest(tool="remote", action="anything", reaching=Isolation.BEYOND)
VARIABLE = {"MATRIX_APPROVAL_TIMEOUT_SECONDS": "300"}
ACCOUNTS = """
approvals: {timeout: 90}
matrix: {approval_timeout_seconds: 120}
platforms:
  matrix: {accounts: {two: {extra: {approval_timeout_seconds: 30}}, three: {}}}
"""


async def seconds_in(root: Path, channel: str, settings: str, env: dict[str, str]) -> float:
    """The time to answer a request of the owner in a chat of the channel."""
    asked: list[QuestionAsked] = []
    async with open_profile(root, settings, env=env) as app, anyio.create_task_group() as group:

        async def emit(event: Event) -> None:
            if isinstance(event, QuestionAsked):
                asked.append(event)
                group.cancel_scope.cancel()

        scope = make_scope(root, channel.partition("/")[0])
        scope = structs.replace(scope, address=Address(channel, "1"), attended=True)
        await app.approvals.decide(scope, REQUEST, emit)
    (event,) = asked
    return event.question.seconds


@pytest.mark.parametrize(
    ("channel", "settings", "env", "seconds"),
    [
        ("matrix", "", {}, 60),
        ("matrix", "", VARIABLE, 300),
        ("telegram", "", VARIABLE, 60),
        ("matrix", ACCOUNTS, {}, 120),
        ("telegram", ACCOUNTS, {}, 90),
        ("matrix/two", ACCOUNTS, VARIABLE, 30),
        ("matrix/three", ACCOUNTS, {}, 120),
        ("matrix", "", {"MATRIX_APPROVAL_TIMEOUT_SECONDS": "soon"}, 60),
    ],
)
async def test_platform_can_have_its_own_time_to_approve(
    tmp_path: Path, channel: str, settings: str, env: dict[str, str], seconds: float
) -> None:
    assert await seconds_in(tmp_path, channel, settings, env) == seconds
