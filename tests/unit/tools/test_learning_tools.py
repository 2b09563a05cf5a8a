"""`memory`, `skills_list`, `skill_view` and `skill_manage`, called by the model in turns."""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from hermes.learning.memory import MemoryLimits, MemoryStore
from hermes.learning.skills.editor import Authorship
from hermes.ports.ledger import Author
from hermes.schema.messages import Result, ToolCall, text_of
from hermes.testing.scripted_model import answer_script
from hermes.tools.memory import MAX_REJECTIONS, MemoryTool
from hermes.tools.skills import SkillDeps, SkillManage, SkillView
from support.learning import LearningHarness, learning_harness, make_call
from support.turns import assistant_message

TEA = "---\nname: tea\ndescription: How tea is made.\n---\n\nIn ${HERMES_SKILL_DIR}: heat water.\n"
NEEDY = (
    "---\nname: needy\ndescription: Needs much.\nprerequisites:\n  commands: [no-such-program]\n"
    "required_environment_variables: [NO_SUCH_VARIABLE]\n---\n\nUse them.\n"
)
ELSEWHERE = "---\nname: elsewhere\ndescription: Of others.\nplatforms: [windows]\n---\n\nx\n"


async def use(harness: LearningHarness, *calls: ToolCall) -> list[dict[str, Any]]:
    """Return the results of these calls in one turn."""
    harness.talk.model.scripts += [[assistant_message(*calls)], answer_script("Done.")]
    await harness.talk.submit("Go on, please.")
    results = [row.message for row in await harness.talk.rows() if isinstance(row.message, Result)]
    return [_fields(message) for message in results[-len(calls) :]]


def _fields(message: Result) -> dict[str, Any]:
    text = text_of(message)
    try:
        return {"failed": message.failed, **msgspec.json.decode(text)}
    except msgspec.DecodeError:
        return {"failed": message.failed, "error": text}


async def test_memory_operations_are_atomic(tmp_path: Path) -> None:
    first = [{"action": "add", "content": text} for text in ("likes tea", "lives in Rome")]
    swap = [
        {"action": "replace", "old_text": "Rome", "content": "lives in Lyon"},
        {"action": "remove", "old_text": "tea"},
    ]
    async with learning_harness(tmp_path) as one:
        (done,) = await use(one, make_call("memory", target="user", operations=first))
        assert (done["success"], done["entry_count"]) == (True, 2)
        before = one.files()
        bad = [*swap, {"action": "remove", "old_text": "coffee"}]
        (refused,) = await use(one, make_call("memory", target="user", operations=bad))
        assert refused["failed"]
        assert "No entry contains 'coffee'" in refused["error"]
        assert one.files() == before
        await use(one, make_call("memory", target="user", operations=swap))
        assert one.files() == {"memories/USER.md": b"lives in Lyon"}
        assert len(await one.learning.ledger.log()) == 2


async def test_full_memory_shows_its_entries_a_limited_number_of_times(
    tmp_path: Path,
) -> None:
    async with learning_harness(tmp_path) as one:
        notebook = MemoryStore(one.home, one.learning.ledger, MemoryLimits(20, 20), one.clock)
        tools = {**one.tools, "memory": MemoryTool(notebook)}
        one.talk.planner.tools = tools
        await use(one, make_call("memory", target="user", action="add", content="likes tea"))
        long = [make_call("memory", target="user", action="add", content="x" * 30 + str(n))
                for n in range(MAX_REJECTIONS)]  # fmt: skip
        *early, last = await use(one, *long)
        assert [one["current_entries"] for one in early] == [["likes tea"]] * (MAX_REJECTIONS - 1)
        assert "Do not use it again" in last["error"]
        assert "current_entries" not in last
        assert one.files() == {"memories/USER.md": b"likes tea"}


async def test_changes_wait_for_approval_if_configured(
    tmp_path: Path,
) -> None:
    async with learning_harness(tmp_path) as one:
        learning = one.learning
        memory = MemoryTool(learning.memory_store, lambda: True)
        manage = SkillManage(learning.skill_editor, lambda: True)
        one.talk.planner.tools = {
            **one.tools,
            "memory": memory,
            "skill_manage": manage,
        }
        done = await use(
            one,
            make_call("memory", target="user", action="add", content="likes tea"),
            make_call("skill_manage", action="create", name="tea", content=TEA),
        )
        assert [one["done"] for one in done] == [False, False]
        assert one.files() == {}
        for proposal in await learning.ledger.waiting():
            await learning.accept(proposal)
        assert one.files() == {
            "memories/USER.md": b"likes tea",
            "skills/tea/SKILL.md": TEA.encode(),
        }


async def test_usable_skills_are_listed_and_opened_with_their_files(
    tmp_path: Path,
) -> None:
    async with learning_harness(tmp_path) as one:
        editor, by = one.learning.skill_editor, Authorship(author=Author.AGENT)
        for name, text in (("tea", TEA), ("needy", NEEDY), ("elsewhere", ELSEWHERE)):
            await editor.create(name, text, "kitchen", by)
        await editor.write_file("tea", "references/pots.md", "Of clay.\n", by)
        listed, none = await use(
            one,
            make_call("skills_list", category="Kitchen"),
            make_call("skills_list", category="attic"),
        )
        assert [skill["name"] for skill in listed["skills"]] == ["needy", "tea"]
        assert none["failed"]
        assert "kitchen" in none["error"]
        tea, needy, pots, outside, gone = await use(
            one,
            make_call("skill_view", name="tea"),
            make_call("skill_view", name="kitchen/needy"),
            make_call("skill_view", name="tea", file_path="references/pots.md"),
            make_call("skill_view", name="tea", file_path="../needy/SKILL.md"),
            make_call("skill_view", name="coffee"),
        )
        assert tea["content"] == f"In {one.home}/skills/kitchen/tea: heat water.\n"
        assert (tea["linked_files"], tea["setup_needed"]) == (["references/pots.md"], False)
        assert needy["missing_required_commands"] == ["no-such-program"]
        assert needy["missing_required_environment_variables"] == ["NO_SUCH_VARIABLE"]
        assert "install no-such-program" in needy["note"]
        assert pots["content"] == "Of clay.\n"
        assert "has no file" in outside["error"]
        assert "no skill 'coffee'" in gone["error"]
        assert one.learning.usage.get("tea").view_count == 1


async def test_secrets_in_a_skill_are_redacted(tmp_path: Path) -> None:
    async with learning_harness(tmp_path) as one:
        by = Authorship(author=Author.PERSON)
        await one.learning.skill_editor.create("tea", TEA.replace("water", "sk-secret"), "", by)
        parts = SkillDeps(
            catalog=one.learning.skill_catalog,
            usage=one.learning.usage,
            environment=lambda: one.learning.environment((), ()),
            redact=lambda text: text.replace("sk-secret", "***"),
        )
        one.talk.planner.tools = {**one.tools, "skill_view": SkillView(parts)}
        (shown,) = await use(one, make_call("skill_view", name="tea"))
        assert "heat ***" in shown["content"]


async def test_agent_cannot_change_pinned_or_user_skills(
    tmp_path: Path,
) -> None:
    patch = make_call(
        "skill_manage", action="patch", name="tea", old_string="heat", new_string="boil"
    )
    async with learning_harness(tmp_path) as one:
        (made,) = await use(
            one, make_call("skill_manage", action="create", name="tea", content=TEA)
        )
        assert made["path"] == "skills/tea"
        assert one.learning.usage.get("tea").created_by == "agent"
        (entry,) = await one.learning.ledger.log()
        assert (entry.change.by, entry.change.origin.session) == (
            Author.AGENT,
            one.talk.conversation.session.id,
        )
        one.learning.usage.pin("tea", pinned=True)
        (refused,) = await use(one, patch)
        assert "pinned" in refused["error"]
        one.learning.usage.pin("tea", pinned=False)
        (done,) = await use(one, structs.replace(patch, id="call_again"))
        assert done["success"]
        assert b"boil water" in one.files()["skills/tea/SKILL.md"]
        mine = TEA.replace("name: tea", "name: mine")
        await one.learning.skill_editor.create("mine", mine, "", Authorship(author=Author.PERSON))
        (refused,) = await use(
            one, make_call("skill_manage", action="edit", name="mine", content=mine + "More.\n")
        )
        assert refused["failed"]
        assert one.files()["skills/mine/SKILL.md"] == mine.encode()
