"""Commands for memory, skills and changes."""

from pathlib import Path

import pytest

from hermes.app.learning import Learning
from hermes.app.learning_commands import LearningCommands
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.schema import Config
from hermes.config.sections.execution import Skills
from hermes.learning.memory import MemoryOperation, MemoryRequest, MemoryTarget
from hermes.learning.skills.editor import Authorship, SkillRequest, propose_request
from hermes.ports.ledger import Author, ChangeOrigin
from hermes.schema.errors import UsageError
from hermes.schema.messages import (
    FILES_HEADER,
    Text,
    User,
    display_parts,
    text_of,
    typed_parts,
    typed_text,
)
from hermes.schema.scope import Role
from hermes.schema.terminal import SubmitReply
from hermes.schema.tools import Effect, ToolSpec
from hermes.testing.clock import FakeClock
from support.slash_commands import CommandHarness, command_harness

TEXT = "---\nname: make-tea\ndescription: How to make tea.\n---\n\nBoil in ${HERMES_SKILL_DIR}.\n"
PAGE = ChangeOrigin(session="s1", sources=("web_extract https://example.org",))


def remember(text: str, origin: ChangeOrigin = PAGE) -> MemoryRequest:
    step = MemoryOperation(action="add", content=text)
    return MemoryRequest(
        target=MemoryTarget.USER, operations=(step,), by=Author.AGENT, origin=origin
    )


async def proposed(harness: CommandHarness, text: str) -> str:
    return (await harness.learning.memory_store.propose(remember(text))).id[-6:].lower()


async def test_memory_shows_pending_proposals(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        assert "nothing yet" in await harness.run_text("/memory")
        await harness.learning.memory_store.change(remember("likes tea"))
        await proposed(harness, "hates tea")
        shown = await harness.run_text("/memory")
        assert "likes tea" in shown
        assert "1 pending: /memory pending" in shown
        pending = await harness.run_text("/memory pending")
        assert "hates tea" in pending
        assert "example.org" in pending


async def test_proposal_is_shown_approved_and_undone(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        name = await proposed(harness, "likes tea")
        full = await harness.run_text(f"/changes show {name}")
        assert "content: likes tea" in full
        assert "example.org" in full
        assert "likes tea" in await harness.run_text(f"/memory approve {name}")
        file = tmp_path / "home/memories/USER.md"
        assert file.read_text() == "likes tea"
        listed = await harness.run_text("/changes")
        change = listed.split()[0]
        assert "+likes tea" in await harness.run_text(f"/changes show {change}")
        assert "undo" in await harness.run_text(f"/changes undo {change}")
        assert not file.exists()


async def test_all_proposals_are_decided_together(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        await proposed(harness, "one")
        await proposed(harness, "two")
        assert "2 proposals rejected" in await harness.run_text("/memory reject all")
        assert "Nothing is pending" in await harness.run_text("/memory pending")
        assert "Nothing" in await harness.run_text("/memory approve all")
        assert not (tmp_path / "home/memories").exists()


async def test_outdated_proposal_is_refused(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        await harness.learning.memory_store.change(remember("likes tea"))
        step = MemoryOperation(action="remove", old_text="likes tea")
        wish = MemoryRequest(target=MemoryTarget.USER, operations=(step,), by=Author.AGENT)
        name = (await harness.learning.memory_store.propose(wish)).id[-6:]
        await harness.learning.memory_store.change(wish)
        with pytest.raises(UsageError, match="No entry contains"):
            await harness.run(f"/changes approve {name}")
        assert await harness.learning.ledger.waiting()


async def test_outdated_proposal_does_not_keep_others_from_being_approved(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        store = harness.learning.memory_store
        await store.change(remember("likes tea"))
        step = MemoryOperation(action="remove", old_text="likes tea")
        removal = MemoryRequest(target=MemoryTarget.USER, operations=(step,), by=Author.AGENT)
        await store.propose(removal)
        await store.change(removal)
        await proposed(harness, "likes coffee")
        shown = await harness.run_text("/memory approve all")
        assert "Not done: " in shown
        assert ".." not in shown
        assert "likes coffee" in await harness.run_text("/memory")


async def test_skill_proposal_is_not_approved_as_memory(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        request = SkillRequest(action="create", name="make-tea", content=TEXT)
        by = Authorship(author=Author.REVIEW, origin=PAGE)
        await propose_request(harness.learning.skill_editor, request, by)
        (proposal,) = await harness.learning.ledger.waiting()
        with pytest.raises(UsageError, match="is a change to a skill"):
            await harness.run(f"/memory approve {proposal.id[-6:]}")
        assert await harness.learning.ledger.waiting()


async def test_memory_approval_is_switched(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        (tmp_path / "home").mkdir()
        assert "saved immediately" in await harness.run_text("/memory approval")
        assert "needs your approval" in await harness.run_text("/memory approval on")
        assert harness.learning.memory_approval
        assert "write_approval: true" in (tmp_path / "home/config.yaml").read_text()
        await harness.run_text("/memory approval off")
        assert not harness.learning.memory_approval


async def test_approved_skill_is_written(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        wish = SkillRequest(action="create", name="make-tea", content=TEXT)
        by = Authorship(author=Author.REVIEW, origin=PAGE)
        await propose_request(harness.learning.skill_editor, wish, by)
        listed = await harness.run_text("/changes")
        assert "create make-tea" in listed
        assert "example.org" in listed
        await harness.run_text("/changes approve all")
        assert "by the agent" in await harness.run_text("/skills")
        assert "Boil in" in await harness.run_text("/skills show make-tea")
        assert "only you can change it" in await harness.run_text("/skills pin make-tea")
        assert "pinned" in await harness.run_text("/skills list")
        await harness.run_text("/skills unpin make-tea")
        assert "pinned" not in await harness.run_text("/skills")


@pytest.mark.parametrize("typed", ["/make-tea", "/make_tea", "/MAKE-TEA"])
async def test_skill_runs_as_a_command(tmp_path: Path, typed: str) -> None:
    async with command_harness(tmp_path) as harness:
        await harness.learning.skill_editor.create(
            "make-tea", TEXT, "", Authorship(author=Author.PERSON)
        )
        reply = await harness.run(f"{typed} for two")
        assert isinstance(reply, SubmitReply)
        text = text_of(User("m", reply.parts))
        assert text.endswith("for two")
        assert f"Boil in {tmp_path / 'home/skills/make-tea'}." in text
        assert harness.learning.usage.get("make-tea").use_count == 1
        harness.as_chat(Role.MEMBER)
        with pytest.raises(UsageError, match="owner"):
            await harness.run(typed)


async def test_bundle_runs_several_skills(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "skill-bundles"
    async with command_harness(tmp_path) as harness:
        for name in ("make-tea", "bake"):
            text = TEXT.replace("make-tea", name)
            await harness.learning.skill_editor.create(
                name, text, "", Authorship(author=Author.PERSON)
            )
        folder.mkdir()
        (folder / "tea-time.yaml").write_text(
            "description: All of it\nskills:\n  - make-tea\n  - bake\n  - gone\n"
            "instruction: |\n  Warm the plates.\n"
        )
        (folder / "empty.yaml").write_text("skills: []\n")
        (folder / "broken.yaml").write_text("skills: [\n")
        (folder / "lost.yaml").write_text("skills: gone\n")
        (folder / "bake.yaml").write_text("skills: make-tea\n")
        line = "/tea-time (make-tea, bake, gone): All of it"
        assert line in (await harness.run_text("/bundles")).splitlines()
        assert line in (await harness.run_text("/skills")).splitlines()
        for typed in ("/tea-time", "/tea_time"):
            reply = await harness.run(f"{typed} at four")
            assert isinstance(reply, SubmitReply)
            text = text_of(User("m", reply.parts))
            assert "follow the skill make-tea" in text
            assert "follow the skill bake" in text
            assert "[Not available, from the same bundle: gone.]" in text
            assert text.endswith("Warm the plates.\n\nat four")
        assert harness.learning.usage.get("bake").use_count == 2
        own = await harness.run("/bake")
        assert isinstance(own, SubmitReply)
        assert "make-tea" not in text_of(User("m", own.parts))
        with pytest.raises(UsageError, match="None of the skills of lost"):
            await harness.run("/lost")
        for typed in ("/empty", "/broken", "/../config"):
            with pytest.raises(UsageError, match="Unknown command"):
                await harness.run(typed)


async def test_command_takes_precedence_over_skill(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        text = TEXT.replace("make-tea", "help")
        await harness.learning.skill_editor.create(
            "help", text, "", Authorship(author=Author.PERSON)
        )
        assert "/memory" in await harness.run_text("/help")
        with pytest.raises(UsageError, match="Unknown command: /nothing"):
            await harness.run("/nothing")


async def test_disabled_skill_is_not_a_command(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", tmp_path / "home")
    config = Config(skills=Skills(disabled=("make-tea",)))
    async with command_harness(tmp_path) as harness:
        await harness.learning.skill_editor.create(
            "make-tea", TEXT, "", Authorship(author=Author.PERSON)
        )
        learning = Learning(home, Env({}), config, harness.conversation.store, FakeClock())
        assert (
            LearningCommands(home, Env({}), harness.learning).skill_for_command("make_tea")
            == "make-tea"
        )
        assert LearningCommands(home, Env({}), learning).skill_for_command("make_tea") == ""


async def test_missing_tools_of_a_small_model_are_reported(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        await harness.learning.skill_editor.create(
            "make-tea", TEXT, "", Authorship(author=Author.PERSON)
        )
        with pytest.raises(UsageError, match="no tool to write skills") as caught:
            await harness.run("/learn how we release")
        assert "/model" in caught.value.hint
        assert "no skill tools" in await harness.run_text("/skills")
        assert "no memory tool" in await harness.run_text("/memory")
        harness.fake_services.more_tools = [
            ToolSpec(name, "", {}, Effect.READ, 1.0)
            for name in ("memory", "skill_view", "skill_manage")
        ]
        assert "no tools" not in await harness.run_text("/skills")
        assert "no tool" not in await harness.run_text("/memory")


async def test_history_shows_skill_command_as_typed(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        await harness.learning.skill_editor.create(
            "make-tea", TEXT, "", Authorship(author=Author.PERSON)
        )
        reply = await harness.run("/make-tea for two")
        assert isinstance(reply, SubmitReply)
        message = User("m", (*reply.parts, Text(f"{FILES_HEADER}\n\n@file:a\n```\nx\n```")))
        assert typed_text(message) == "/make-tea for two"
        assert display_parts(message) == (Text("/make-tea for two"), Text("attached: @file:a"))
        # Whoever asks it again wants it followed again.
        assert typed_parts(message) == reply.parts
        bare = await harness.run("/make-tea")
        assert isinstance(bare, SubmitReply)
        assert typed_text(User("m", bare.parts)) == "/make-tea"


async def test_learn_submits_a_turn(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as harness:
        harness.fake_services.more_tools = [ToolSpec("skill_manage", "", {}, Effect.WRITE, 1.0)]
        reply = await harness.run("/learn how we release")
        assert isinstance(reply, SubmitReply)
        message = User("m", reply.parts)
        assert "goes well the next time: how we release" in text_of(message)
        assert typed_text(message) == "/learn how we release"
        with pytest.raises(UsageError, match="needs a topic"):
            await harness.run("/learn")


@pytest.mark.parametrize(
    "line", ["/memory x", "/skills pin", "/changes undo", "/memory approval x"]
)
async def test_invalid_arguments_are_refused(tmp_path: Path, line: str) -> None:
    async with command_harness(tmp_path) as harness:
        with pytest.raises(UsageError):
            await harness.run(line)
