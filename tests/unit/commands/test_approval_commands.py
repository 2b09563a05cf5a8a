"""`/approve`, `/deny`, `/yolo` and `/approvals`."""

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

ONLY_ONCE = "Allowed once: rm -rf a; ls\nThis cannot be saved, so it is allowed once only."


async def request_and_type(
    harness: CommandHarness, line: str, command: str = "rm -rf build"
) -> tuple[bool, str]:
    """Request approval of a command and type a line while the request is pending."""
    service = harness.context.services.approvals
    assert service is not None
    scope = Scope(
        "default", harness.conversation.conversation.session.id, "r", "/work", attended=True
    )
    request = ApprovalRequest(  # noqa: S604 - not a subprocess call
        tool="terminal", action=command, reaching=Isolation.OPEN, shell=True, folder="/work"
    )
    question_asked = anyio.Event()
    allowed: list[bool] = []
    names: list[str] = []

    async def on_event(event: Event) -> None:
        if isinstance(event, QuestionAsked):
            names.append(short_id(event.question).lower())
            question_asked.set()

    async def decide() -> None:
        allowed.append((await service.decide(scope, request, on_event)).allowed)

    text = ""
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(decide)
            await question_asked.wait()
            text = await harness.run_text(line.replace("{id}", names[0]))
    return allowed[0], text


async def test_request_is_approved_and_denied(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        harness.as_chat()
        assert await harness.run_text("/approve") == "There is nothing to approve or answer here."
        assert await request_and_type(harness, "/approve") == (
            True,
            "Allowed once: rm -rf build",
        )
        assert await request_and_type(harness, "/deny all not now") == (
            False,
            "Denied: rm -rf build",
        )
        assert await request_and_type(harness, "/approve always", "rm -rf a; ls") == (
            True,
            ONLY_ONCE,
        )
        assert await harness.run_text("/deny") == "Already answered: once."
        for line in ("/approve maybe", "/approve session always", "/approvals x", "/yolo x"):
            with pytest.raises(UsageError):
                await harness.run(line)


async def test_request_is_named_by_the_end_of_its_id(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        harness.as_chat()
        allowed, text = await request_and_type(harness, "/approve {id}")
        assert (allowed, text) == (True, "Allowed once: rm -rf build")
        allowed, text = await request_and_type(harness, "/deny {id} not now")
        assert (allowed, text) == (False, "Denied: rm -rf build")


async def test_saved_approval_is_listed_and_revoked(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        harness.as_chat()
        assert await harness.run_text("/approvals") == "There are no saved approvals."
        await request_and_type(harness, "/approve always")
        first, hint = (await harness.run_text("/approvals")).splitlines()
        assert "always  terminal (open): rm -rf build" in first
        assert hint == "/approvals revoke ID revokes one."
        assert await harness.run_text(f"/approvals revoke {first.split()[0]}") == (
            "Revoked: rm -rf build"
        )
        with pytest.raises(NotFound):
            await harness.run("/approvals revoke 12345678")


async def test_saved_approval_names_its_session(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        harness.as_chat()
        await request_and_type(harness, "/approve session")
        assert "  this session  terminal" in await harness.run_text("/approvals")
        await harness.run("/new")
        assert "  another session  terminal" in await harness.run_text("/approvals")


async def test_yolo_is_for_owners_and_one_session(tmp_path: Path) -> None:
    async with command_harness(tmp_path, answer_script("hi")) as harness:
        assert "Approvals are off" in await harness.run_text("/yolo")
        assert "off: /yolo is on" in await harness.run_text("/status")
        assert "on again" in await harness.run_text("/yolo")
        text = await harness.run_text("/status")
        assert "smart" in text
        assert "or without one" in text
        await harness.run("/yolo on")
        await harness.run("/new")
        assert "smart" in await harness.run_text("/status")
        harness.as_chat()
        with pytest.raises(UsageError, match="no session"):
            await harness.run("/yolo")
        harness.as_chat(Role.MEMBER)
        for line in ("/yolo", "/approvals"):
            with pytest.raises(UsageError, match="owner"):
                await harness.run(line)
