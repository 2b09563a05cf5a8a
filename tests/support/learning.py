"""A learning agent with real memory and skills, and tools that return untrusted content."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from msgspec import Raw, structs

from hermes.app.learning import Learning
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.schema import Config
from hermes.kit.ids import new_id
from hermes.kit.tasks import background_tasks
from hermes.learning.review.reviewer import ReviewDeps, ReviewedTurn
from hermes.learning.review.scheduler import ReviewRules, ReviewScheduler
from hermes.learning.review.triggers import ReviewIntervals
from hermes.ports.tool import Tool, ToolContext, ToolOutput
from hermes.schema.messages import ToolCall
from hermes.schema.scope import OWNER
from hermes.schema.sessions import Session, SessionFilter
from hermes.store.memory import MemoryDatabase
from hermes.testing.clock import FakeClock
from hermes.testing.scripted_model import Script
from hermes.tools.memory import MemoryTool
from hermes.tools.skills import SkillDeps, SkillManage, SkillsList, SkillView
from support.conversation import ConversationHarness, conversation_harness, fixed_price
from support.polling import wait_until
from support.turns import FakeTool, ToolBody

NO_REVIEWS = ReviewIntervals(memory=0, skills=0)


class NestedCallTool(FakeTool):
    """Calls another tool of the turn, as a program does, and may print its result."""

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        got = await ctx.call_tool("web_extract", Raw(b'{"url": "https://example.org/inner"}'))
        return got if b"print" in bytes(args) else ToolOutput.text("(no output)")


def make_call(tool: str, /, **args: object) -> ToolCall:
    """A call with arguments of any names."""
    return ToolCall(new_id("call"), tool, Raw(msgspec.json.encode(args)))


def reading_tools(words: str) -> dict[str, Tool]:
    """Tools that return the same text; the web tools mark it as untrusted."""

    def bring() -> ToolBody:
        async def body(args: dict[str, object], context: ToolContext) -> str:
            return words

        return body

    names = ("read_file", "search_files", "terminal", "process", "session_search", "delegate_task")
    tools: dict[str, Tool] = {name: FakeTool(name, bring()) for name in names}
    for name in ("web_extract", "mcp_mail"):
        tool = FakeTool(name, bring())
        tool.spec = structs.replace(tool.spec, foreign=True)
        tools[name] = tool
    tools["execute_code"] = NestedCallTool("execute_code")
    return tools


class LearningHarness:
    reviews: ReviewScheduler

    def __init__(
        self, talking: ConversationHarness, path: Path, clock: FakeClock, words: str
    ) -> None:
        self.talk = talking
        self.clock = clock
        self.home = path / "home"
        home = Home(self.home, self.home)
        self.learning = Learning(home, Env({}), Config(), talking.store, clock)
        self.tools = self._tools(words)
        self.notices: list[str] = []
        talking.planner.tools = self.tools

    def _tools(self, words: str) -> Mapping[str, Tool]:
        learning = self.learning
        skills = SkillDeps(
            catalog=learning.skill_catalog,
            usage=learning.usage,
            environment=lambda: learning.environment(self.tools, ()),
            redact=str,
        )
        return {
            **reading_tools(words),
            "memory": MemoryTool(learning.memory_store),
            "skill_manage": SkillManage(learning.skill_editor),
            "skill_view": SkillView(skills),
            "skills_list": SkillsList(skills),
        }

    async def sessions(self, source: str) -> list[Session]:
        found = await self.talk.store.archive_for(OWNER).list(SessionFilter(source=source))
        return [one.session for one in found]

    async def notify(self, occasion: ReviewedTurn, text: str) -> None:
        self.notices.append(text)

    def review_parts(self) -> ReviewDeps:
        return ReviewDeps(
            store=self.talk.store,
            clock=self.clock,
            planner=self.talk.planner,
            price=fixed_price,
            ledger=lambda: self.learning.ledger,
            profile="default",
        )

    def files(self) -> dict[str, bytes]:
        """The learned files on disk."""
        found = [path for name in ("memories", "skills") for path in (self.home / name).rglob("*")]
        return {
            path.relative_to(self.home).as_posix(): path.read_bytes()
            for path in found
            if path.is_file() and not path.name.startswith(".")
        }


@asynccontextmanager
async def learning_harness(
    path: Path,
    *scripts: Script,
    content: str = "",
    rules: ReviewRules | None = None,
    database: MemoryDatabase | None = None,
) -> AsyncGenerator[LearningHarness]:
    """Exiting waits for running reviews."""
    clock = FakeClock()
    async with (
        conversation_harness(*scripts, clock=clock, database=database) as talking,
        background_tasks() as group,
    ):
        one = LearningHarness(talking, path, clock, content)
        one.reviews = ReviewScheduler(
            one.review_parts(), rules or ReviewRules(intervals=NO_REVIEWS), one.notify, group
        )
        talking.after_turn.append(one.reviews.turn_ended)
        yield one


async def wait_for_reviews(one: LearningHarness) -> None:
    """Wait until no review is running."""
    await wait_until(lambda: not one.reviews.active_sessions)


async def finished_reviews(one: LearningHarness, count: int = 1) -> Sequence[Session]:
    """Wait for that many finished reviews and return them."""
    await wait_for_reviews(one)
    found = [session for session in await one.sessions("review") if session.ended_at]
    assert len(found) == count
    return found
