"""The board, a task, jobs, sessions and approvals in a real Chromium, as a person uses them."""

from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import structs

from hermes.cron.job_changes import JobChange
from hermes.cron.operation import CronOperation
from hermes.kanban.boards import BoardInfo
from hermes.kanban.lifecycle import ClaimTerms, claim_task
from hermes.kanban.service import BoardService
from hermes.kanban.tasks import NewTask, create_task
from hermes.kanban.worker import Worker
from hermes.ports.board import BoardRows
from hermes.ports.jobs import FireState, Overlap, SaveFire
from hermes.schema.board import Task, TaskStatus
from hermes.schema.messages import Text, User
from hermes.session.conversation import Conversation, SessionOptions
from hermes.testing.fake_openai.script import Call, Reply, Script
from support.chromium import open_window
from support.polling import wait_until
from support.web_page import WebHarness, confirm, fill, web_harness

pytestmark = pytest.mark.slow

DRAG = """(() => {
    const dataTransfer = new DataTransfer(), bubbles = true, cancelable = true;
    const send = (kind, selector) => document.querySelector(selector).dispatchEvent(
        new DragEvent(kind, { dataTransfer, bubbles, cancelable }));
    send('dragstart', '%s'); send('dragover', '%s'); send('drop', '%s');
})()"""
PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c63600000"
    "02000001e221bc330000000049454e44ae426082"
)
"""A PNG of one pixel."""
CHOOSE = """(() => {
    const list = document.querySelector('%s');
    list.value = '%s';
    list.dispatchEvent(new Event('input', { bubbles: true }));
})()"""
PLACES = """document.addEventListener('refreshed', () => {
    const place = () => document.querySelector('%s').getBoundingClientRect().top;
    const first = place();
    requestAnimationFrame(() => requestAnimationFrame(() => window.places = [first, place()]));
}, { once: true })"""
"""Notes where an element is when the page was loaded again, and when it was drawn."""
COMMAND = "echo out > here.txt # and a remark that is much longer than the screen of a phone"
ESCALATED = {"command": COMMAND, "escalate": "outside", "reason": "to test"}


async def add_tasks(web: WebHarness, *titles: str, board: str | None = None) -> list[str]:
    service: BoardService = web.app.features.get("kanban")

    def work(rows: BoardRows) -> list[str]:
        return [create_task(rows, NewTask(title=one), 1).id for one in titles]

    return await service.write(board, work)


async def read_task(web: WebHarness, name: str, board: str | None = None) -> Task:
    service: BoardService = web.app.features.get("kanban")
    found = await service.read(board, lambda rows: rows.task(name))
    assert found is not None
    return found


async def add_session(web: WebHarness, words: str, source: str = "web") -> Conversation:
    conversation = web.app.new_conversation(SessionOptions(source=source))
    await conversation.begin_with([User("u1", (Text(words),))])
    return conversation


async def test_board_is_filtered_as_one_types_and_a_task_is_dragged(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        tree, wall = await add_tasks(web, "Plant a tree", "Build a wall")
        page = await window.page()
        await web.log_in(page, "/board")
        await page.wait("customElements.get('task-board')")
        await page.click(f"[data-select={wall}]")
        await fill(page, "[name=q]", "tree")
        await page.wait("document.querySelectorAll('.task').length === 1")
        assert "Plant a tree" in await page.text("#columns")
        # A task that is out of sight is not changed.
        assert await page.run("document.querySelector('#bulk').hidden")
        assert await page.run("document.activeElement.name") == "q"
        card, target = f"#task-{tree}", "[data-status=blocked]"
        await page.run(DRAG % (card, target, target))
        await page.wait(f"document.querySelector('{target} {card}')")
        assert (await read_task(web, tree)).status is TaskStatus.BLOCKED
        # The filter outlives what is loaded again.
        await page.run(CHOOSE % ("[name=assignee]", "default"))
        await page.wait("!document.querySelector('.task')")
        await page.run(CHOOSE % ("[name=assignee]", ""))
        await page.wait("document.querySelector('.task')")
        assert await page.run("document.querySelectorAll('.task').length") == 1
        assert await page.run("location.search") == "?q=tree"
        assert page.errors == []


async def test_other_board_is_chosen_and_everything_stays_on_it(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        page = await window.page()
        await web.log_in(page, "/board")
        picker = "document.querySelectorAll('main > .tags a')"
        assert await page.run(f"{picker}.length") == 0, "there is nothing to choose"
        service: BoardService = web.app.features.get("kanban")
        service.boards.create(BoardInfo(slug="garden", name="The garden"))
        await add_tasks(web, "At home")
        (tree,) = await add_tasks(web, "Plant a tree", board="garden")
        await page.goto(f"{web.url}/board")
        assert await page.text("main > .tags [aria-current]") == "default"
        assert "At home" in await page.text("#columns")
        await page.click("main > .tags a:last-child")
        await page.wait("location.search === '?board=garden' && customElements.get('task-board')")
        assert await page.text("main > .tags [aria-current]") == "The garden"
        assert await page.run("document.querySelectorAll('.task').length") == 1
        await page.run(DRAG % (f"#task-{tree}", "[data-status=blocked]", "[data-status=blocked]"))
        await page.wait(f"document.querySelector('[data-status=blocked] #task-{tree}')")
        assert (await read_task(web, tree, "garden")).status is TaskStatus.BLOCKED
        await fill(page, "[name=q]", "tree")
        await page.wait("location.search === '?q=tree&board=garden'")
        await page.run("document.querySelector('details:has([name=title])').open = true")
        await fill(page, "[name=title]", "Water the tree")
        await page.press("Enter")
        await page.wait("document.querySelectorAll('.task').length === 2")
        await page.click(f"#task-{tree} a")
        await page.wait("location.pathname.includes('tasks') && document.readyState === 'complete'")
        await page.run("document.querySelector('[name=body][rows=\"3\"]').focus()")
        await page.type("An oak.")
        await page.run("document.activeElement.form.requestSubmit()")
        await page.wait("document.querySelector('.cards:last-of-type').innerText.includes('oak')")
        await page.click("main > p a")
        await page.wait("location.pathname + location.search === '/board?board=garden'")
        assert page.errors == []


async def test_task_is_edited_on_its_page(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        (name,) = await add_tasks(web, "Plant a tree")
        page = await window.page()
        await web.log_in(page, f"/board/tasks/{name}")
        await page.click("#edit summary")
        await fill(page, "#edit [name=title]", "Plant two trees")
        await fill(page, "#edit [name=body]", "An *oak*.")
        await fill(page, "#edit [name=priority]", "3")
        await page.run("document.querySelector('#edit [name=status]').value = 'blocked'")
        await page.click("#edit [type=submit]")
        await page.wait("document.querySelector('h1').textContent === 'Plant two trees'")
        assert await page.text(".md em") == "oak"
        task = await read_task(web, name)
        assert (task.title, task.body, task.priority) == ("Plant two trees", "An *oak*.", 3)
        assert task.status is TaskStatus.BLOCKED
        await page.click("main > form textarea")
        await page.type("Oak or **beech**?")
        await page.click("main > form [type=submit]")
        await page.wait("document.querySelector('.cards strong')?.textContent === 'beech'")
        assert page.errors == []


async def test_log_of_a_task_shows_files_and_no_buttons_of_the_chat(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        (name,) = await add_tasks(web, "Paint")
        service: BoardService = web.app.features.get("kanban")
        terms = ClaimTerms(lock="host:1", expires=9_999_999_999)
        run = await service.write(None, lambda rows: claim_task(rows, name, terms, 2))
        worker = Worker(service.boards.choose(), name, run.id)
        options = SessionOptions(source="board", key=worker.session_key("default"))
        picture = await web.app.blobs.put(PICTURE, "image/png", "dot.png")
        await web.app.new_conversation(options).begin_with([User("u1", (Text("Paint"), picture))])
        page = await window.page()
        await web.log_in(page, f"/board/tasks/{name}")
        await page.wait("document.querySelector('#task-log img')?.naturalWidth === 1")
        shown = "[...document.querySelectorAll('#task-log button')].filter((e) => %s).length"
        assert await page.run(shown % "e.checkVisibility()") == 0
        assert page.errors == []


async def test_job_is_edited_paused_run_and_deleted(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        cron: CronOperation = web.app.features.get("cron")
        made = await cron.service.create(JobChange(name="tea", schedule="2h", prompt="Make tea."))
        job = f"#job-{made.id}"
        page = await window.page()
        await web.log_in(page, "/jobs")
        await page.click(f"{job} summary")
        await fill(page, f"{job} [name=prompt]", "Make green tea.")
        await page.click(f"{job} [type=submit]")
        await page.wait(f"document.querySelector('{job} > p + p').textContent.includes('green')")
        changed = await cron.service.find(made.id)
        assert changed.prompt == "Make green tea."
        assert changed.next_run_at == made.next_run_at, "the delay does not begin anew"
        await page.click(f"{job} summary")
        await fill(page, f"{job} [name=schedule]", "every 3h")
        await page.click(f"{job} [type=submit]")
        await page.wait(f"document.querySelector('{job} .facts').textContent.includes('every 3h')")

        await page.run(PLACES % f"{job} [data-url$=run]")
        await page.click(f"{job} [data-url$=pause]")
        await page.wait(f"document.querySelector('{job} [data-url$=resume]')")
        first, drawn = await page.wait("window.places")
        assert first == drawn, "nothing jumps while it is drawn"
        assert not (await cron.service.find(made.id)).enabled
        await page.click(f"{job} [data-url$=run]")
        await page.wait("document.querySelector('main td')?.textContent === 'tea'")
        await page.wait("document.querySelector('#toasts p')")
        assert len(await cron.service.history(made.id, 5)) == 1
        await page.click(f"{job} [data-url$=delete]")
        await confirm(page)
        await page.wait(f"!document.querySelector('{job}')")
        assert list(await cron.service.jobs(disabled=True)) == []
        # A job that somebody else makes appears without a reload.
        other = await cron.service.create(JobChange(name="water", schedule="9h", prompt="Water."))
        await page.wait(f"document.querySelector('#job-{other.id}')")
        assert page.errors == []


async def test_history_shows_output_and_duration_of_all_jobs_or_of_one(
    browser: str, tmp_path: Path
):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        cron: CronOperation = web.app.features.get("cron")
        jobs = [
            await cron.service.create(JobChange(name=name, schedule="2h", prompt="Go."))
            for name in ("tea", "water")
        ]
        for job in jobs:
            fire = await cron.service.trigger(job.id)
            ended = structs.replace(
                fire, state=FireState.COMPLETED, output=f"*{job.name}* is <b>ready</b>",
                session=job.id, started_at=fire.at, ended_at=fire.at + timedelta(seconds=90),
            )  # fmt: skip
            await web.app.store.commit(SaveFire(ended, (fire.state,)))
        page = await window.page()
        await web.log_in(page, "/jobs")
        assert await page.run("document.querySelectorAll('main tbody tr').length") == 2
        assert "·" in await page.text("svg [data-at]"), "the browser adds the time"
        await page.click(f"#job-{jobs[0].id} a")
        await page.wait("location.search && document.readyState === 'complete'")
        assert await page.text("#history") == "History of tea"
        assert await page.run("document.querySelectorAll('main tbody tr').length") == 1
        assert await page.text("tbody em") == "tea"
        assert not await page.run("document.querySelector('tbody b')")
        assert "1.5 min" in await page.text("tbody")
        assert page.errors == []


async def test_folded_settings_of_a_job_are_edited(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        cron: CronOperation = web.app.features.get("cron")
        made = await cron.service.create(JobChange(name="tea", schedule="2h", prompt="Make tea."))
        job = f"#job-{made.id}"
        page = await window.page()
        await web.log_in(page, "/jobs")
        await page.click(f"{job} summary")
        await page.click(f"{job} form summary")
        await fill(page, f"{job} [name=model]", "small-model")
        await fill(page, f"{job} [name=repeat]", "4")
        await fill(page, f"{job} [name=timezone]", "Europe/Nowhere")
        await page.run(f"document.querySelector('{job} [name=overlap]').value = 'queue'")
        await page.run(f"document.querySelector('{job} form').requestSubmit()")
        await page.wait("document.querySelector('#toasts .error')?.textContent.includes('zone')")
        await fill(page, f"{job} [name=timezone]", "Europe/Berlin")
        await page.run(f"document.querySelector('{job} form').requestSubmit()")
        await page.wait(f"!document.querySelector('{job} details[open]')")
        changed = await cron.service.find(made.id)
        assert (changed.model, changed.repeat.times) == ("small-model", 4)
        assert (changed.timezone, changed.policy.overlap) == ("Europe/Berlin", Overlap.QUEUE)
        assert changed.prompt == "Make tea."


async def test_session_is_found_renamed_exported_and_deleted(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        tea = (await add_session(web, "green tea")).session.id
        coffee = (await add_session(web, "black coffee")).session.id
        page, folder = await window.page(), tmp_path / "downloads"
        await page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
        await web.log_in(page, "/sessions")
        await fill(page, "[name=q]", "coffee")
        await page.wait("document.querySelector('#list mark')?.textContent === 'coffee'")
        assert "tea" not in await page.text("#list")
        await page.goto(f"{web.url}/sessions")
        row = f"[data-row='{tea}']"
        await page.click(f"{row} [data-action=rename]")
        await fill(page, "dialog[open] input", "About tea")
        await page.press("Enter")
        await page.wait(f"document.querySelector(\"{row} .title\").textContent === 'About tea'")
        await page.click(f"{row} [href$='export.md']")
        saved = folder / f"{tea}.md"
        await wait_until(lambda: saved.exists() and "green tea" in saved.read_text())
        for kind in ("html", "json"):
            address = f"/sessions/{tea}/export.{kind}"
            assert "green tea" in await page.run(f"fetch('{address}').then((r) => r.text())")
        await page.click(f"[data-row='{coffee}'] [data-action=delete]")
        await confirm(page)
        await page.wait(f"!document.querySelector(\"[data-row='{coffee}']\")")
        assert await page.run("document.querySelectorAll('[data-row]').length") == 1
        # A session that begins elsewhere appears without a reload.
        terminal = web.app.new_conversation(SessionOptions(source="cli"))
        await terminal.submit([Text("white tea")], web.ignore)
        await page.wait(f"document.querySelector(\"[data-row='{terminal.session.id}']\")")
        assert page.errors == []


async def test_sessions_are_found_by_meaning_source_and_lineage(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        words = "My car broke down on the highway near Lyon yesterday."
        car = await add_session(web, words, "telegram")
        await add_session(web, "The baby wakes up five times a night.", "cli")
        while not await web.app.store.maintenance.build_vectors():
            pass
        page = await window.page()
        await web.log_in(page, "/sessions")
        await fill(page, "[name=q]", "automobile trouble, motorway")
        await page.wait("document.querySelector('#list .snippet')")
        # A session without a title is called by its first words, not by its id.
        assert await page.text("#list .title") == words
        await page.run(CHOOSE % ("[name=source]", "cli"))
        await page.wait("!document.querySelector('#list')?.textContent.includes('Lyon')")

        begun = car.session.id
        await car.branch("Another way")
        await page.goto(f"{web.url}/sessions?source=telegram")
        assert await page.run(f"document.querySelector('.facts [href$=\"{begun}\"]') !== null")
        await page.goto(f"{web.url}/sessions?family={begun}")
        nested = f".family ul a[href='/chat/{car.session.id}']"
        assert await page.text(nested) == "Another way"
        current = await page.run("document.querySelector('.family [aria-current]').pathname")
        assert current == f"/chat/{begun}"


async def test_approval_is_given_where_everything_that_waits_is_listed(
    browser: str, tmp_path: Path
):
    script = Script(replies=[Reply(calls=[Call("terminal", ESCALATED)]), Reply("Done.")])
    async with web_harness(tmp_path, script) as web, open_window(browser) as window:
        page, other = await window.page(), await window.page()
        await web.log_in(other, "/approvals")
        assert await other.run("!document.querySelector('.question')")
        await web.log_in(page)
        await page.wait("document.activeElement?.id === 'message'")
        await page.type("please")
        await page.press("Enter")
        await page.wait("document.querySelector('.question button')")
        await other.call("Page.bringToFront")
        await other.wait("document.querySelector('.question button')")
        assert await other.text(".question code") == COMMAND
        # The whole of it is in view, also on a phone.
        await other.resize(390, 844)
        hidden = "[...document.querySelectorAll('.question pre')].some((e) => %s)"
        assert not await other.run(hidden % "e.scrollWidth > e.clientWidth")
        assert not await other.run(hidden % "e.scrollHeight > e.clientHeight")
        assert await other.run("document.querySelector('.waiting time').dateTime > '2026'")
        await other.click("[data-answer=once]")
        await other.wait("!document.querySelector('.question')")
        await wait_until((tmp_path / "workspace" / "here.txt").exists)
        await page.wait("document.body.textContent.includes('Done.')")
