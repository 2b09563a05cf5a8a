"""What the agent learned, seen and decided by typing."""

from pathlib import Path

import pytest

from hermes.app.learning import Learning
from hermes.app.learning_commands import LearningCommands
from hermes.commands.command import SubmitReply
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.schema import Config
from hermes.config.sections.execution import Skills
from hermes.learning.ledger.change import Author, ChangeOrigin
from hermes.learning.memory.entries import MemoryOperation, MemoryTarget
from hermes.learning.memory.memory_store import MemoryRequest
from hermes.learning.skills.editor import Authorship, SkillRequest, propose_request
from hermes.schema.attachments import FILES_HEADER, display_parts, typed_parts, typed_text
from hermes.schema.errors import UsageError
from hermes.schema.messages import Text, User, text_of
from hermes.schema.scope import Role
from hermes.schema.tools import Effect, ToolSpec
from hermes.testing.clock import FakeClock
from support.slash_commands import CommandHarness, command_harness

pytestmark = pytest.mark.anyio
TEXT = "---\nname: make-tea\ndescription: How to make tea.\n---\n\nBoil in ${HERMES_SKILL_DIR}.\n"
PAGE = ChangeOrigin(session="s1", words=("web_extract https://example.org",))


def remember(text: str, origin: ChangeOrigin = PAGE) -> MemoryRequest:
    step = MemoryOperation(action="add", content=text)
    return MemoryRequest(
        target=MemoryTarget.USER, operations=(step,), by=Author.AGENT, origin=origin
    )


async def proposed(at: CommandHarness, text: str) -> str:
    return (await at.learning.notebook.propose(remember(text))).id[-6:].lower()


async def test_memory_is_shown_with_what_waits(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        assert "nothing yet" in await at.read("/memory")
        await at.learning.notebook.change(remember("likes tea"))
        await proposed(at, "hates tea")
        shown = await at.read("/memory")
        assert "likes tea" in shown
        assert "1 pending: /memory pending" in shown
        pending = await at.read("/memory pending")
        assert "hates tea" in pending
        assert "example.org" in pending


async def test_a_proposal_is_shown_accepted_and_undone(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        name = await proposed(at, "likes tea")
        full = await at.read(f"/changes show {name}")
        assert "content: likes tea" in full
        assert "example.org" in full
        assert "likes tea" in await at.read(f"/memory approve {name}")
        file = tmp_path / "home/memories/USER.md"
        assert file.read_text() == "likes tea"
        listed = await at.read("/changes")
        change = listed.split()[0]
        assert "+likes tea" in await at.read(f"/changes show {change}")
        assert "undo" in await at.read(f"/changes undo {change}")
        assert not file.exists()


async def test_all_are_decided_at_once(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        await proposed(at, "one")
        await proposed(at, "two")
        assert "2 proposals rejected" in await at.read("/memory reject all")
        assert "Nothing waits" in await at.read("/memory pending")
        assert "Nothing is waiting" in await at.read("/memory approve all")
        assert not (tmp_path / "home/memories").exists()


async def test_a_proposal_that_is_no_longer_possible_says_so(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        await at.learning.notebook.change(remember("likes tea"))
        step = MemoryOperation(action="remove", old_text="likes tea")
        wish = MemoryRequest(target=MemoryTarget.USER, operations=(step,), by=Author.AGENT)
        name = (await at.learning.notebook.propose(wish)).id[-6:]
        await at.learning.notebook.change(wish)
        with pytest.raises(UsageError, match="No entry contains"):
            await at.type(f"/changes approve {name}")
        assert await at.learning.ledger.waiting()


async def test_asking_about_everything_is_switched(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        (tmp_path / "home").mkdir()
        assert "at once" in await at.read("/memory approval")
        assert "waits for you" in await at.read("/memory approval on")
        assert at.learning.memory_approval
        assert "write_approval: true" in (tmp_path / "home/config.yaml").read_text()
        await at.read("/memory approval off")
        assert not at.learning.memory_approval


async def test_a_proposed_skill_is_written_when_wanted(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        wish = SkillRequest(action="create", name="make-tea", content=TEXT)
        by = Authorship(author=Author.REVIEW, origin=PAGE)
        await propose_request(at.learning.skill_editor, wish, by)
        listed = await at.read("/changes")
        assert "create make-tea" in listed
        assert "example.org" in listed
        await at.read("/changes approve all")
        assert "by the agent" in await at.read("/skills")
        assert "Boil in" in await at.read("/skills show make-tea")
        assert "only you change it" in await at.read("/skills pin make-tea")
        assert "pinned" in await at.read("/skills list")
        await at.read("/skills unpin make-tea")
        assert "pinned" not in await at.read("/skills")


@pytest.mark.parametrize("typed", ["/make-tea", "/make_tea", "/MAKE-TEA"])
async def test_a_skill_is_a_command(tmp_path: Path, typed: str) -> None:
    async with command_harness(tmp_path) as at:
        await at.learning.skill_editor.create(
            "make-tea", TEXT, "", Authorship(author=Author.PERSON)
        )
        reply = await at.type(f"{typed} for two")
        assert isinstance(reply, SubmitReply)
        text = text_of(User("m", reply.parts))
        assert text.endswith("for two")
        assert f"Boil in {tmp_path / 'home/skills/make-tea'}." in text
        assert at.learning.usage.of("make-tea").use_count == 1
        at.chats(Role.MEMBER)
        with pytest.raises(UsageError, match="owner"):
            await at.type(typed)


async def test_a_bundle_is_a_command_for_several_skills(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "skill-bundles"
    async with command_harness(tmp_path) as at:
        for name in ("make-tea", "bake"):
            text = TEXT.replace("make-tea", name)
            await at.learning.skill_editor.create(name, text, "", Authorship(author=Author.PERSON))
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
        assert line in (await at.read("/bundles")).splitlines()
        assert line in (await at.read("/skills")).splitlines()
        for typed in ("/tea-time", "/tea_time"):
            reply = await at.type(f"{typed} at four")
            assert isinstance(reply, SubmitReply)
            text = text_of(User("m", reply.parts))
            assert "follow the skill make-tea" in text
            assert "follow the skill bake" in text
            assert "[Not available, from the same bundle: gone.]" in text
            assert text.endswith("Warm the plates.\n\nat four")
        assert at.learning.usage.of("bake").use_count == 2
        own = await at.type("/bake")
        assert isinstance(own, SubmitReply)
        assert "make-tea" not in text_of(User("m", own.parts))
        with pytest.raises(UsageError, match="None of the skills of lost"):
            await at.type("/lost")
        for typed in ("/empty", "/broken", "/../config"):
            with pytest.raises(UsageError, match="no command"):
                await at.type(typed)


async def test_a_command_wins_over_a_skill_of_its_name(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        text = TEXT.replace("make-tea", "help")
        await at.learning.skill_editor.create("help", text, "", Authorship(author=Author.PERSON))
        assert "/memory" in await at.read("/help")
        with pytest.raises(UsageError, match="no command /nothing"):
            await at.type("/nothing")


async def test_a_skill_that_is_switched_off_is_no_command(tmp_path: Path) -> None:
    home = Home(tmp_path / "home", tmp_path / "home")
    config = Config(skills=Skills(disabled=("make-tea",)))
    async with command_harness(tmp_path) as at:
        await at.learning.skill_editor.create(
            "make-tea", TEXT, "", Authorship(author=Author.PERSON)
        )
        learning = Learning(home, Env({}), config, at.one.store, FakeClock())
        assert (
            LearningCommands(home, Env({}), at.learning).skill_for_command("make_tea") == "make-tea"
        )
        assert LearningCommands(home, Env({}), learning).skill_for_command("make_tea") == ""


async def test_what_a_small_model_has_no_tools_for_is_said(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        await at.learning.skill_editor.create(
            "make-tea", TEXT, "", Authorship(author=Author.PERSON)
        )
        with pytest.raises(UsageError, match="no tool to write skills") as caught:
            await at.type("/learn how we release")
        assert "/model" in caught.value.hint
        assert "no tools for skills" in await at.read("/skills")
        assert "no tool for memory" in await at.read("/memory")
        at.fake_services.more_tools = [
            ToolSpec(name, "", {}, Effect.READ, 1.0)
            for name in ("memory", "skill_view", "skill_manage")
        ]
        assert "no tools" not in await at.read("/skills")
        assert "no tool" not in await at.read("/memory")


async def test_a_followed_skill_reads_as_it_was_typed(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        await at.learning.skill_editor.create(
            "make-tea", TEXT, "", Authorship(author=Author.PERSON)
        )
        reply = await at.type("/make-tea for two")
        assert isinstance(reply, SubmitReply)
        said = User("m", (*reply.parts, Text(f"{FILES_HEADER}\n\n@file:a\n```\nx\n```")))
        assert typed_text(said) == "/make-tea for two"
        assert display_parts(said) == (Text("/make-tea for two"), Text("attached: @file:a"))
        # Whoever asks it again wants it followed again.
        assert typed_parts(said) == reply.parts
        bare = await at.type("/make-tea")
        assert isinstance(bare, SubmitReply)
        assert typed_text(User("m", bare.parts)) == "/make-tea"


async def test_learning_is_a_turn(tmp_path: Path) -> None:
    async with command_harness(tmp_path) as at:
        at.fake_services.more_tools = [ToolSpec("skill_manage", "", {}, Effect.WRITE, 1.0)]
        reply = await at.type("/learn how we release")
        assert isinstance(reply, SubmitReply)
        assert "how we release" in text_of(User("m", reply.parts))
        with pytest.raises(UsageError, match="What is to be learned"):
            await at.type("/learn")


@pytest.mark.parametrize(
    "line", ["/memory x", "/skills pin", "/changes undo", "/memory approval x"]
)
async def test_wrong_words_say_what_is_right(tmp_path: Path, line: str) -> None:
    async with command_harness(tmp_path) as at:
        with pytest.raises(UsageError):
            await at.type(line)
