"""Availability of commands by surface, role and permission."""

from pathlib import Path

import pytest
from msgspec import structs

from hermes.commands.command import Availability
from hermes.commands.registry import standard_commands
from hermes.commands.services import CommandServices
from hermes.commands.surface import CommandCaller
from hermes.gateway.roles import ALWAYS_ALLOWED, GUEST_COMMANDS, CommandAccess
from hermes.schema.errors import NotFound, UsageError
from hermes.schema.scope import Role
from hermes.testing.scripted_model import answer_script
from support.slash_commands import command_harness
from support.turns import EventRecorder

TERMINAL_ONLY = {
    "clear", "copy", "image", "output", "save", "snapshot", "quit", "config",
    "statusbar", "timestamps", "redraw", "prompt", "theme", "paste", "export", "diff", "init",
}  # fmt: skip
CHAT_ONLY = {"start", "commands", "sethome", "link", "approve", "deny"}
MEANWHILE = {"busy", "queue", "steer"}
"""What is of use only where something can be said while a turn is running."""
OWNERS_ONLY = {"codex-runtime", "cron", "goal", "subgoal", "verbose",
    "debug", "sethome", "restart", "platform", "image", "rollback", "save", "snapshot",
    "yolo", "approvals", "memory", "skills", "bundles", "changes", "learn",
    "trust", "reload-mcp", "background", "curator", "reload-skills",
}  # fmt: skip


def shown(text: str) -> set[str]:
    words = [line.split()[0] for line in text.splitlines() if line.lstrip().startswith("/")]
    return {word.removeprefix("/").removesuffix(":") for word in words}


async def test_help_lists_available_commands(tmp_path: Path) -> None:
    everything = {command.name for command in standard_commands().commands}
    async with command_harness(tmp_path) as harness:
        assert shown(await harness.run_text("/help")) == everything - CHAT_ONLY - MEANWHILE
        harness.as_chat()
        assert shown(await harness.run_text("/help")) == everything - TERMINAL_ONLY
        harness.as_chat(Role.MEMBER)
        assert shown(await harness.run_text("/help")) == everything - TERMINAL_ONLY - OWNERS_ONLY
        harness.as_chat(Role.GUEST, permitted=frozenset({"help", "new", "save", "debug"}))
        assert shown(await harness.run_text("/help")) == {"help", "new"}


async def test_unavailable_command_is_not_listed_and_says_why(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        harness.context = structs.replace(
            harness.context, caller=CommandCaller(), services=CommandServices()
        )
        missing = {
            "clear",
            "goal",
            "subgoal",
            "copy",
            "verbose",
            "platform",
            "reload-mcp",
            "restart",
            "rollback",
            "snapshot",
        } | MEANWHILE
        assert shown(await harness.run_text("/help")).isdisjoint(missing)
        for name in sorted(missing):
            with pytest.raises(UsageError) as wrong:
                await harness.run(f"/{name}")
            assert str(wrong.value)


async def test_commands_are_listed_in_pages(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        harness.as_chat()
        first = await harness.run_text("/commands")
        count = int(first.split("Page 1 of ")[1].removesuffix("; next: /commands 2"))
        assert count > 2
        pages = [await harness.run_text(f"/commands {page}") for page in range(1, count + 1)]
        assert pages[0] == first
        assert set().union(*(shown(page) for page in pages)) >= shown(
            await harness.run_text("/help")
        )
        for line in ("/commands 0", f"/commands {count + 1}", "/commands x"):
            with pytest.raises(UsageError):
                await harness.run(line)


@pytest.mark.parametrize("name", sorted(TERMINAL_ONLY | {"start", "sethome"}))
async def test_command_on_wrong_surface_is_refused(tmp_path: Path, name: str) -> None:
    async with command_harness(tmp_path) as harness:
        if name in TERMINAL_ONLY:
            harness.as_chat()
        with pytest.raises(UsageError) as wrong:
            await harness.run(f"/{name}")
        where = "in the terminal" if name in TERMINAL_ONLY else "in a chat"
        assert str(wrong.value) == f"/{name} only works {where}."
        with pytest.raises(UsageError):
            await harness.run(f"/help {name}")


@pytest.mark.parametrize("role", [Role.MEMBER, Role.GUEST])
async def test_owner_commands_are_refused_to_others(tmp_path: Path, role: Role) -> None:
    async with command_harness(tmp_path) as harness:
        harness.as_chat(role)
        for name in OWNERS_ONLY - TERMINAL_ONLY:
            with pytest.raises(UsageError, match="Only an owner"):
                await harness.run(f"/{name}")
        for line in (
            "/model big --global",
            "/reasoning low --global",
            "/kanban",
            "/kanban create x",
        ):
            with pytest.raises(UsageError, match="Only an owner"):
                await harness.run(line)
        assert harness.fake_services.saved == []
        assert harness.models.kept == []
        assert harness.conversation.conversation.session.effort == ""


async def test_alias_does_not_bypass_permissions(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        harness.as_chat(Role.MEMBER, permitted=frozenset({"help", "q", "reset"}))
        for line in ("/q x", "/reset", "/queue x"):
            with pytest.raises(UsageError, match="You cannot use"):
                await harness.run(line)


async def test_guest_sees_nothing_of_other_users(tmp_path: Path) -> None:
    """Even with all commands permitted."""
    async with command_harness(
        tmp_path, answer_script("secret answer"), answer_script("hi")
    ) as harness:
        await harness.conversation.submit("secret question")
        other = harness.conversation.conversation.session.id
        await harness.run_text("/title Secret plan")
        await harness.run_text("/new")
        await harness.conversation.submit("hello", EventRecorder())
        own = harness.conversation.conversation.session.id
        theirs = harness.conversation.store.archive_for("fake:7")
        harness.as_chat(Role.GUEST, archive=theirs)
        texts: list[str] = []
        for command in standard_commands().commands:
            for words in ("", "1", other, other[:6], "Secret plan"):
                if command.name in {"undo", "retry", "title", "branch", "new", "handoff"}:
                    continue
                try:
                    reply = await harness.run(f"/{command.name} {words}")
                except (UsageError, NotFound) as error:
                    text = f"{error} {error.hint}"
                else:
                    text = str(getattr(reply, "text", ""))
                texts.append(text.replace(words, "") if words else text)
        everything = "\n".join(texts)
        assert own in everything
        assert other not in everything
        assert "ecret" not in everything
        assert "/work" not in everything
        assert "/home" not in everything


def test_guest_commands_exist() -> None:

    known = set(standard_commands().names)
    later = ALWAYS_ALLOWED | GUEST_COMMANDS
    assert later <= known
    access = CommandAccess()
    for command in standard_commands().commands:
        if command.owner_only or command.availability is Availability.TERMINAL:
            assert not access.may_run(Role.GUEST, command.name)
