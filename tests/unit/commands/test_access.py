"""Who may type what where: `/help` shows it, and what is not shown cannot be run."""

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

pytestmark = pytest.mark.anyio

TERMINAL_ONLY = {
    "clear", "copy", "image", "save", "snapshot", "verbose", "quit", "handoff", "config",
    "statusbar", "timestamps", "redraw", "prompt",
}  # fmt: skip
CHAT_ONLY = {"start", "commands", "sethome", "approve", "deny"}
MEANWHILE = {"busy", "queue", "steer"}
"""What is of use only where something can be said while a turn is running."""
OWNERS_ONLY = {"codex-runtime",
    "debug", "sethome", "restart", "platform", "image", "rollback", "save", "snapshot",
    "yolo", "approvals", "memory", "skills", "bundles", "changes", "learn",
    "trust", "reload-mcp", "background", "curator", "reload-skills",
}  # fmt: skip


def shown(text: str) -> set[str]:
    words = [line.split()[0] for line in text.splitlines() if line.lstrip().startswith("/")]
    return {word.removeprefix("/").removesuffix(":") for word in words}


async def test_help_lists_what_applies(tmp_path: Path) -> None:
    everything = {command.name for command in standard_commands().commands}
    async with command_harness(tmp_path) as at:
        assert shown(await at.read("/help")) == everything - CHAT_ONLY - MEANWHILE
        at.chats()
        assert shown(await at.read("/help")) == everything - TERMINAL_ONLY
        at.chats(Role.MEMBER)
        assert shown(await at.read("/help")) == everything - TERMINAL_ONLY - OWNERS_ONLY
        at.chats(Role.GUEST, permitted=frozenset({"help", "new", "save", "debug"}))
        assert shown(await at.read("/help")) == {"help", "new"}


async def test_what_cannot_work_is_not_listed_and_says_why(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        at.context = structs.replace(at.context, seat=CommandCaller(), services=CommandServices())
        missing = {
            "clear",
            "copy",
            "verbose",
            "platform",
            "reload-mcp",
            "restart",
            "rollback",
            "snapshot",
        } | MEANWHILE
        assert shown(await at.read("/help")).isdisjoint(missing)
        for name in sorted(missing):
            with pytest.raises(UsageError) as wrong:
                await at.type(f"/{name}")
            assert str(wrong.value)


async def test_pages(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        at.chats()
        first = await at.read("/commands")
        count = int(first.split("Page 1 of ")[1].removesuffix("; /commands 2 goes on."))
        assert count > 2
        pages = [await at.read(f"/commands {page}") for page in range(1, count + 1)]
        assert pages[0] == first
        assert set().union(*(shown(page) for page in pages)) >= shown(await at.read("/help"))
        for line in ("/commands 0", f"/commands {count + 1}", "/commands x"):
            with pytest.raises(UsageError):
                await at.type(line)


@pytest.mark.parametrize("name", sorted(TERMINAL_ONLY | {"start", "sethome"}))
async def test_the_wrong_surface_is_told_in_a_sentence(tmp_path: Path, name: str) -> None:
    async with command_harness(tmp_path) as at:
        if name in TERMINAL_ONLY:
            at.chats()
        with pytest.raises(UsageError) as wrong:
            await at.type(f"/{name}")
        where = "in the terminal" if name in TERMINAL_ONLY else "in a chat"
        assert str(wrong.value) == f"/{name} works {where} only."
        with pytest.raises(UsageError):
            await at.type(f"/help {name}")


@pytest.mark.parametrize("role", [Role.MEMBER, Role.GUEST])
async def test_what_only_owners_do(tmp_path: Path, role: Role) -> None:
    async with command_harness(tmp_path) as at:
        at.chats(role)
        for name in OWNERS_ONLY - TERMINAL_ONLY:
            with pytest.raises(UsageError, match="for the owner only"):
                await at.type(f"/{name}")
        for line in ("/model big --global", "/reasoning low --global"):
            with pytest.raises(UsageError, match="Only an owner"):
                await at.type(line)
        assert at.fake_services.kept == []
        assert at.models.kept == []
        assert at.one.conversation.session.effort == ""


async def test_aliases_open_no_closed_door(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        at.chats(Role.MEMBER, permitted=frozenset({"help", "q", "reset"}))
        for line in ("/q x", "/reset", "/queue x"):
            with pytest.raises(UsageError, match="is not for you here"):
                await at.type(line)


async def test_a_guest_learns_nothing_about_others(tmp_path: Path) -> None:
    """Whatever a guest may type, and would even if everything were permitted."""
    async with command_harness(tmp_path, answer_script("secret answer"), answer_script("hi")) as at:
        await at.one.say("secret question")
        other = at.one.conversation.session.id
        await at.read("/title Secret plan")
        await at.read("/new")
        await at.one.say("hello", EventRecorder())
        own = at.one.conversation.session.id
        theirs = at.one.store.archive_for("fake:7")
        at.chats(Role.GUEST, archive=theirs)
        told: list[str] = []
        for command in standard_commands().commands:
            for words in ("", "1", other, other[:6], "Secret plan"):
                if command.name in {"undo", "retry", "title", "branch", "new"}:
                    continue
                try:
                    reply = await at.type(f"/{command.name} {words}")
                except (UsageError, NotFound) as error:
                    text = f"{error} {error.hint}"
                else:
                    text = str(getattr(reply, "text", ""))
                told.append(text.replace(words, "") if words else text)
        everything = "\n".join(told)
        assert own in everything
        assert other not in everything
        assert "ecret" not in everything
        assert "/work" not in everything
        assert "/home" not in everything


def test_guests_may_use_what_concerns_only_them() -> None:
    """Every name that opens a door names a command."""
    known = set(standard_commands().names)
    later = ALWAYS_ALLOWED | GUEST_COMMANDS
    assert later <= known
    access = CommandAccess()
    for command in standard_commands().commands:
        if command.owners or command.where is Availability.TERMINAL:
            assert not access.may_run(Role.GUEST, command.name)
