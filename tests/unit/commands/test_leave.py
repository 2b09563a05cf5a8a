"""`/approve`, `/deny`, `/yolo` and `/approvals`: what they say, and what they refuse."""

from pathlib import Path

import anyio
import pytest

from hermes.approvals.messages import short_id
from hermes.ports.approvals import ApprovalRequest, Isolation
from hermes.schema.errors import NotFound, UsageError
from hermes.schema.events import Event, QuestionAsked
from hermes.schema.scope import Role, Scope
from hermes.testing.scripted_model import answer_script
from support.slash_commands import CommandHarness, command_harness

pytestmark = pytest.mark.anyio
ONLY_ONCE = "Allowed once: rm -rf a; ls\nThis cannot be saved, so it is allowed once only."


async def asked(at: CommandHarness, line: str, command: str = "rm -rf build") -> tuple[bool, str]:
    """Wish something, and type a line while it is asked for."""
    desk = at.context.services.approvals
    assert desk is not None
    scope = Scope("default", at.one.conversation.session.id, "r", "/work", attended=True)
    wish = ApprovalRequest(  # noqa: S604 - a word of our own
        tool="terminal", action=command, reaching=Isolation.OPEN, shell=True, folder="/work"
    )
    heard = anyio.Event()
    allowed: list[bool] = []
    names: list[str] = []

    async def tell(event: Event) -> None:
        if isinstance(event, QuestionAsked):
            names.append(short_id(event.question).lower())
            heard.set()

    async def rule() -> None:
        allowed.append((await desk.rule(scope, wish, tell)).allowed)

    told = ""
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(rule)
            await heard.wait()
            told = await at.read(line.replace("{id}", names[0]))
    return allowed[0], told


async def test_leave_is_given_and_refused(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        at.chats()
        assert await at.read("/approve") == "There is nothing to approve or answer here."
        assert await asked(at, "/approve") == (True, "Allowed once: rm -rf build")
        assert await asked(at, "/deny all not now") == (False, "Denied: rm -rf build")
        assert await asked(at, "/approve always", "rm -rf a; ls") == (True, ONLY_ONCE)
        assert await at.read("/deny") == "Already answered: once."
        for line in ("/approve maybe", "/approve session always", "/approvals x", "/yolo x"):
            with pytest.raises(UsageError):
                await at.type(line)


async def test_a_request_is_named_by_the_end_of_its_id(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        at.chats()
        allowed, told = await asked(at, "/approve {id}")
        assert (allowed, told) == (True, "Allowed once: rm -rf build")
        allowed, told = await asked(at, "/deny {id} not now")
        assert (allowed, told) == (False, "Denied: rm -rf build")


async def test_what_is_allowed_is_listed_and_taken_back(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        at.chats()
        assert await at.read("/approvals") == "Nothing is allowed beforehand."
        await asked(at, "/approve always")
        first, how = (await at.read("/approvals")).splitlines()
        assert "always  terminal (open): rm -rf build" in first
        assert how == "/approvals revoke ID takes one back."
        assert await at.read(f"/approvals revoke {first.split()[0]}") == (
            "No longer allowed: rm -rf build"
        )
        with pytest.raises(NotFound):
            await at.type("/approvals revoke 12345678")


async def test_for_which_session_something_is_allowed_is_told(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        at.chats()
        await asked(at, "/approve session")
        assert "  this session  terminal" in await at.read("/approvals")
        await at.type("/new")
        assert "  another session  terminal" in await at.read("/approvals")


async def test_yolo_is_the_owners_and_of_one_session(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("hi")) as at:
        assert "nothing is asked for" in await at.read("/yolo")
        assert "nothing: /yolo is on" in await at.read("/status")
        assert "asked again" in await at.read("/yolo")
        told = await at.read("/status")
        assert "smart" in told
        assert "where there is none" in told
        await at.type("/yolo on")
        await at.type("/new")
        assert "smart" in await at.read("/status")
        at.chats()
        with pytest.raises(UsageError, match="no session"):
            await at.type("/yolo")
        at.chats(Role.MEMBER)
        for line in ("/yolo", "/approvals"):
            with pytest.raises(UsageError, match="owner"):
                await at.type(line)
