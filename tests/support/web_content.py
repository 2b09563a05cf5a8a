"""Something to show on every page of the web page; the texts of others are attacks."""

import msgspec

from hermes.cron.job_changes import JobChange
from hermes.cron.operation import CronOperation
from hermes.gateway.pairing import Pairing
from hermes.kanban.lifecycle import ClaimTerms, block_task, claim_task
from hermes.kanban.service import BoardService
from hermes.kanban.tasks import NewTask, create_task
from hermes.learning.memory import MemoryOperation, MemoryRequest, MemoryTarget
from hermes.learning.skills.editor import Authorship
from hermes.ports.board import BoardRows
from hermes.ports.ledger import Author
from hermes.schema.board import BlockKind, RunChange
from hermes.schema.messages import Assistant, Message, Result, Stop, Text, ToolCall, User
from hermes.session.conversation import SessionOptions
from hermes.testing.fake_openai.script import Call, Reply, Script
from hermes.web.pages.layout import NAVIGATION, SETTINGS_PAGES, page_path
from support.chromium import Page
from support.web_page import IDLE, WebHarness, say

ATTACK = "<img src=x onerror=canary()><script>canary()</script>"
CANARY = "window.canary = () => { window.ran = true }"
"""Defines what the attacks call, in every new document of a page."""
SKILL = "---\nname: tea\ndescription: How to make tea.\n---\nBoil **water**.\n"
AGENT = Authorship(author=Author.AGENT)
CONFIG = msgspec.json.encode({
    "limits": {"usd_per_day": 5},
    "platforms": {"telegram": {"enabled": True, "extra": {"allow_from": [ATTACK, "*"]}}},
    "mcp_servers": {"play": {"command": ATTACK}, "off": {"url": "http://x", "enabled": False}},
    "hooks": {"pre_tool_call": [{"command": ATTACK, "matcher": ATTACK}]},
}).decode()  # fmt: skip
ANSWER = "# Title\n\n- a [link](https://example.org)\n\n```py\nx = 1\n```\n\n| a | b |\n|---|---|\n"
ASKING = {"command": "git push", "escalate": "outside", "reason": "to publish it"}


def conversation_script() -> Script:
    """The model's part in `converse`."""
    return Script(
        [
            Reply("First this.", calls=[Call("terminal", {"command": "echo done"})]),
            Reply(ANSWER),
            Reply(calls=[Call("terminal", ASKING)]),
        ],
        default=Reply("A title"),
    )


async def converse(web: WebHarness, page: Page) -> list[str]:
    """Two sessions, of which one waits for an approval: their pages."""
    found: list[str] = []
    for words, shown in (
        ("hello", f"document.querySelector('.md table') && {IDLE}"),
        ("publish it", "document.querySelector('[data-action=answer]')"),
    ):
        await page.goto(f"{web.url}/chat/new")
        await say(page, words)
        await page.wait(shown)
        found.append(str(await page.run("location.pathname")))
    return found


async def fill_pages(web: WebHarness) -> list[str]:
    """All pages, each with something to show."""
    learning = web.app.learning
    await learning.memory_store.change(remember(f"Tea {ATTACK}"))
    await learning.memory_store.propose(remember(f"More {ATTACK}"))
    await learning.skill_editor.create("tea", f"{SKILL}\n{ATTACK}\n", "", AGENT)
    Pairing(web.app.home.pairing, web.app.clock).request("telegram", "2003", ATTACK)
    cron: CronOperation = web.app.features.get("cron")
    await cron.service.create(JobChange(name=ATTACK, schedule="every 6h", prompt=ATTACK))
    session = await session_of(web, ATTACK)
    tasks = await make_tasks(web)
    waiting = await block_task_of(web, ATTACK)
    return [
        *map(page_path, NAVIGATION),
        *(f"/settings/{name}" for name in SETTINGS_PAGES),
        "/settings/channels/telegram",
        "/settings/channels/email",
        "/settings?section=dashboard",
        "/learning/skills/tea",
        "/board/graph",
        f"/board/tasks/{tasks[0]}",
        f"/board/tasks/{waiting}",
        "/board?column=archived",
        f"/sessions?family={session}",
        "/sessions?q=img",
    ]


def remember(entry: str, by: Author = Author.AGENT) -> MemoryRequest:
    operation = MemoryOperation(action="add", content=entry)
    return MemoryRequest(target=MemoryTarget.MEMORY, operations=(operation,), by=by)


async def session_of(web: WebHarness, title: str, **options: str) -> str:
    conversation = web.app.new_conversation(SessionOptions(source="web", **options))
    await conversation.begin_with([User("u1", (Text(title),))])
    return conversation.session.id


async def make_tasks(web: WebHarness) -> list[str]:
    """Three tasks, of which one waits for another; one has run, cost something and has a log."""
    service: BoardService = web.app.features.get("kanban")

    def work(rows: BoardRows) -> list[str]:
        first = create_task(rows, NewTask(title="Pour concrete"), 1)
        second = create_task(rows, NewTask(title="Build walls", parents=(first.id,)), 2)
        third = create_task(rows, NewTask(title="Plant a tree"), 3)
        claim_task(rows, first.id, ClaimTerms(lock="host:1", expires=9_999_999_999), 4)
        rows.change_run(1, RunChange(metadata={"cost_usd": 0.25}))
        return [first.id, second.id, third.id]

    ids = await service.write(None, work)
    logs = service.boards.paths(service.boards.choose()).logs
    logs.mkdir(parents=True, exist_ok=True)
    (logs / f"{ids[0]}.log").write_text("mixing \x1b[31mcement\n")
    return ids


async def block_task_of(web: WebHarness, title: str) -> str:
    """A task that waits for an answer; its title is also the question."""
    service: BoardService = web.app.features.get("kanban")

    def work(rows: BoardRows) -> str:
        task = create_task(rows, NewTask(title=title, assignee="@owner"), 5).id
        block_task(rows, task, title, BlockKind.NEEDS_INPUT, 6, author=title)
        return task

    return await service.write(None, work)


async def store_messages(web: WebHarness, texts: list[str]) -> str:
    """A session with each text as a question, an answer and the output of a tool."""
    messages: list[Message] = []
    for number, words in enumerate(texts):
        call = ToolCall(f"c{number}", "terminal", msgspec.Raw(msgspec.json.encode({"x": words})))
        messages += [
            User(f"u{number}", (Text(words),)),
            Assistant(f"a{number}", (Text(words), call), Stop.TOOLS),
            Result(f"r{number}", f"c{number}", (Text(words),), shown=words),
        ]
    conversation = web.app.new_conversation(SessionOptions(source="web"))
    await conversation.begin_with(messages)
    return conversation.session.id
