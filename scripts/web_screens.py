"""Take pictures of every page in a browser, in light and dark and at the size of a phone.

PYTHONPATH=tests python scripts/web_screens.py [FOLDER]     by default docs/screens/web
"""

import asyncio
import base64
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from hermes.cron.job_changes import JobChange
from hermes.cron.operation import CronOperation
from hermes.gateway.pairing import Pairing
from hermes.kanban.lifecycle import (
    ClaimTerms,
    Completion,
    block_task,
    claim_task,
    complete_task,
)
from hermes.kanban.service import BoardService
from hermes.kanban.tasks import NewTask, comment_on, create_task
from hermes.learning.memory import MemoryOperation, MemoryRequest, MemoryTarget
from hermes.learning.skills.editor import Authorship, SkillRequest, propose_request
from hermes.ports.board import BoardRows
from hermes.ports.ledger import Author
from hermes.ports.store import RecordUsage
from hermes.schema.board import BlockKind, RunChange
from hermes.schema.messages import Text, Usage, User
from hermes.session.conversation import SessionOptions
from hermes.testing.fake_openai.script import Call, Reply, Script
from support.chromium import Page, chromium_process, open_window
from support.web_page import WebHarness, web_harness

PLACE = Path(__file__).parent.parent / "docs" / "screens" / "web"
PAGES = ("sessions", "approvals", "jobs", "board", "board/graph", "logs", "usage", "learning",
         "learning/skills/water-plants", "settings", "settings/channels",
         "settings/channels/telegram", "settings/people", "settings/profiles", "settings/mcp",
         "settings/hooks", "system")  # fmt: skip
QUALITY = 70
CONFIG = """\
limits: {usd_per_day: 5, usd_per_session: 1}
platforms:
  telegram: {enabled: true, extra: {allow_from: ["1001", "1002"], allow_admin_from: ["1001"]}}
mcp_servers:
  files: {command: files-server, args: [--token, secret], enabled: false}
  wiki: {url: "https://wiki.example.org/mcp", enabled: false}
hooks:
  on_session_end: [{command: /usr/bin/true}]
"""
SKILL = """\
---
name: water-plants
description: When and how much to water which plant.
---
1. Look at the list in `references/plants.md`.
2. Water what is **dry**.
"""
ANSWER = """\
The greeting ran its words together. I put a **space** between them and ran the tests.

```python
def greet(name: str) -> None:
    print(f"hello {name}")
```

| file | change |
|---|---|
| `greet.py` | a space before the name |
| `test_greet.py` | *one* new case |

1. Both tests pass.
2. Nothing else calls it.
"""
ASKING = {"command": "git push origin main", "escalate": "outside", "reason": "to publish it"}
LOG = (
    ("INFO", "hermes.gateway", "telegram: connected as @garden_bot"),
    ("INFO", "hermes.cron", "job Morning briefing: completed in 12.4 s"),
    ("WARNING", "hermes.models", "openai: rate limit; the next attempt is in 8 s"),
    ("INFO", "hermes.models", "openai: the answer came at the second attempt"),
    ("ERROR", "hermes.mcp", "wiki: the server ended with code 1"),
    ("INFO", "hermes.gateway", "telegram: 3 messages delivered"),
)
AGENT = Authorship(author=Author.AGENT)
JOBS = (("Morning briefing", "0 7 * * *"), ("Check the backups", "every 6h"),
        ("Water the plants", "30 18 * * *"))  # fmt: skip


async def take(page: Page, name: str, folder: Path) -> None:
    """Three pictures of the page as it is."""
    for kind, size, scheme in (
        ("light", (1280, 800), "light"),
        ("dark", (1280, 800), "dark"),
        ("phone", (390, 780), "light"),
    ):
        await page.resize(*size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await page.call("Emulation.setEmulatedMedia", features=features)
        await page.run("document.activeElement?.blur()")
        await page.run("new Promise(done => setTimeout(done, 400))")
        shot = await page.call("Page.captureScreenshot", format="webp", quality=QUALITY)
        (folder / f"{name}-{kind}.webp").write_bytes(base64.b64decode(shot["data"]))
        if "--png" in sys.argv:
            shot = await page.call("Page.captureScreenshot", format="png")
            (folder / f"{name}-{kind}.png").write_bytes(base64.b64decode(shot["data"]))
    await page.resize(1280, 800)


async def say(page: Page, words: str) -> None:
    await page.run("document.getElementById('message').focus()")
    await page.type(words)
    await page.press("Enter")


async def learn(web: WebHarness) -> None:
    """Memory, a skill, and proposals that wait."""
    learning = web.app.learning
    entries = ("The owner prefers short answers.", "Backups are in /srv/backups.", "يفضّل العربية")
    for entry in entries:
        await learning.memory_store.change(memory(entry, Author.AGENT))
    await learning.memory_store.propose(memory("Plants are watered at noon.", Author.REVIEW))
    await learning.skill_editor.create("water-plants", SKILL, "", AGENT)
    request = SkillRequest("patch", "water-plants", old_string="**dry**", new_string="**dry** only")
    await propose_request(learning.skill_editor, request, AGENT)
    Pairing(web.app.home.pairing, web.app.clock).request("telegram", "2003", "Noor")


def write_log(web: WebHarness) -> None:
    folder = web.app.home.logs
    folder.mkdir(exist_ok=True)
    records = [
        f"2026-05-04 09:{minute:02}:00,120 {level} {name}: {words}\n"
        for minute, (level, name, words) in enumerate(LOG)
    ]
    (folder / "agent.log").write_text("".join(records))


async def spend(web: WebHarness) -> None:
    """Usage of three weeks, of two people and two models."""
    now, store = web.app.clock.now(), web.app.store
    for principal, model, price in (("owner", "large", 5e-6), ("telegram:1002", "small", 1e-6)):
        options = SessionOptions(source="telegram", principal=principal)
        conversation = web.app.new_conversation(options)
        await conversation.begin_with([User("u1", (Text("Plans for the garden"),))])
        for back in range(21):
            amount = 4000 + 1500 * (back * 7 % 5)
            usage = Usage(amount, amount // 8, amount * (back % 4) // 5)
            at = now - timedelta(days=back)
            session = conversation.session.id
            cost = amount * price
            await store.commit(RecordUsage(session, "r", model, "example", usage, cost, at))


def memory(entry: str, by: Author) -> MemoryRequest:
    operation = MemoryOperation(action="add", content=entry)
    return MemoryRequest(target=MemoryTarget.MEMORY, operations=(operation,), by=by)


async def converse(web: WebHarness, page: Page, folder: Path) -> None:
    await web.log_in(page)
    await page.wait("document.activeElement?.id === 'message'")
    await take(page, "new", folder)
    await say(page, "The greeting in greet.py looks wrong. Can you fix it?")
    await page.wait(
        "document.querySelector('.md table') && !document.querySelector('[data-running]')"
    )
    await take(page, "chat", folder)
    await page.run("location.assign('/chat/new')")
    await page.wait("location.pathname === '/chat/new' && document.activeElement?.id === 'message'")
    await say(page, "Publish it, please.")
    await page.wait("document.querySelector('[data-action=answer]')")
    await take(page, "approval", folder)


async def fill(web: WebHarness) -> str:
    """Jobs and a board; returns a task with everything that a task can have."""
    cron: CronOperation = web.app.features.get("cron")
    for name, schedule in JOBS:
        await cron.service.create(JobChange(name=name, schedule=schedule, prompt=f"{name}."))
    service: BoardService = web.app.features.get("kanban")
    now = int(datetime.now(UTC).timestamp())

    def work(rows: BoardRows) -> str:
        def add(title: str, *parents: str, priority: int = 0) -> str:
            new = NewTask(title=title, body="See the *plan*.", parents=parents, priority=priority,
                          assignee="default")  # fmt: skip
            return create_task(rows, new, now - 4000).id

        plan = add("Write down what the site must do", priority=2)
        design = add("Draw the pages", plan)
        texts = add("Write the texts", plan)
        build = add("Build the pages", design, texts)
        add("Check with a screen reader", build)
        add("Publish", build)
        complete_task(rows, plan, Completion(summary="Three pages, one form."), now - 3000)
        for one in (design, texts):
            run = claim_task(rows, one, ClaimTerms(lock="host:1", expires=now + 9000), now - 600)
            rows.change_run(run.id, RunChange(metadata={"cost_usd": 0.0421}))
        comment_on(rows, design, "owner", "Please use **large** type.", now - 300)
        choose = add("Choose a color for the site")
        run = claim_task(rows, choose, ClaimTerms(lock="host:1", expires=now + 900), now - 200)
        question = "Green like the logo, or *blue* like the old site?"
        block_task(rows, choose, question, BlockKind.NEEDS_INPUT, now - 100, author="default",
                   run_id=run.id)  # fmt: skip
        return design

    task = await service.write(None, work)
    logs = service.boards.paths(service.boards.choose()).logs
    logs.mkdir(parents=True, exist_ok=True)
    (logs / f"{task}.log").write_text("reading plan.md\ndrawing start page\ndrawing form\n")
    return task


async def main(address: str, folder: Path) -> None:
    command = {"command": "echo '2 passed in 0.01s'"}
    script = Script(
        [
            Reply(calls=[Call("terminal", command)]),
            Reply(ANSWER),
            Reply(calls=[Call("terminal", ASKING)]),
        ],
        default=Reply("Fix the greeting"),
    )
    with TemporaryDirectory() as home:
        async with (
            web_harness(Path(home), script, config=CONFIG, username="me") as web,
            open_window(address) as window,
        ):
            page = await window.page()
            await page.goto(f"{web.url}/login")
            await take(page, "login", folder)
            task = await fill(web)
            write_log(web)
            await learn(web)
            await spend(web)
            await converse(web, page, folder)
            for path in (*PAGES, f"board/tasks/{task}"):
                await page.goto(f"{web.url}/{path}")
                if path == "system":
                    await page.click("#doctor")
                    await page.wait_long("document.querySelector('#findings li')")
                name = "task" if task in path else path.replace("/", "-")
                name = "skill" if "skills" in path else name.removeprefix("settings-")
                await take(page, name, folder)


if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else PLACE
    place.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as browser, chromium_process(Path(browser)) as address:
        asyncio.run(main(address, place))
