"""A task that waits for the owner, and everything else that its page can change."""

from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.kanban.boards import BoardInfo
from hermes.kanban.lifecycle import ClaimTerms, Completion, block_task, claim_task
from hermes.kanban.reviews import request_review
from hermes.kanban.service import BoardService, TaskDetails, task_details
from hermes.kanban.tasks import NewTask, create_task, find_task
from hermes.ports.board import BoardRows
from hermes.schema.board import BlockKind, TaskStatus
from support.chromium import Page, open_window
from support.web_client import web_client
from support.web_page import WebHarness, confirm, fill, quoted, web_harness

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

OPEN = "document.querySelector({}).open = true"
CHOSEN = """(() => {
    const files = new DataTransfer();
    files.items.add(new File(['two\\nlines'], '../plan <b>.txt'));
    const picker = document.querySelector('[data-upload]');
    picker.files = files.files;
    picker.dispatchEvent(new Event('change', { bubbles: true }));
})()"""


async def make(web: WebHarness, work: Callable[[BoardRows, int], str], board: str = "") -> str:
    service: BoardService = web.app.features.get("kanban")
    return await service.write(board or None, lambda rows: work(rows, service.now()))


async def add(web: WebHarness, new: NewTask) -> str:
    return await make(web, lambda rows, now: create_task(rows, new, now).id)


async def read(web: WebHarness, task: str, board: str = "") -> TaskDetails:
    service: BoardService = web.app.features.get("kanban")
    return await service.read(
        board or None, lambda rows: task_details(rows, find_task(rows, task))
    )  # fmt: skip


def claimed(rows: BoardRows, title: str, now: int) -> tuple[str, int]:
    task = create_task(rows, NewTask(title=title, assignee="default"), now)
    return task.id, claim_task(rows, task.id, ClaimTerms(lock="h:1", expires=now + 900), now).id


def blocked(rows: BoardRows, now: int) -> str:
    task, run = claimed(rows, "Choose a color", now)
    words = "Is it *green*, or <img src=x onerror=alert(1)> blue?"
    block_task(rows, task, words, BlockKind.NEEDS_INPUT, now, author="default", run_id=run)
    return task


def reviewed(rows: BoardRows, now: int) -> str:
    task, run = claimed(rows, "Write the imprint", now)
    request_review(rows, task, Completion(summary="It is in `imprint.md`."), now, run_id=run)
    return task


async def press(page: Page, selector: str) -> None:
    """Reach a control by its focus and press Enter."""
    await page.wait(f"document.querySelector({quoted(selector)})?.checkVisibility()")
    await page.run(f"document.querySelector({quoted(selector)}).focus()")
    await page.press("Enter")


async def test_tasks_that_wait_for_the_owner_are_answered_among_approvals(
    browser: str, tmp_path: Path
):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        page = await window.page()
        await web.log_in(page, "/approvals")
        assert "Nothing is waiting" in await page.text("main")
        service: BoardService = web.app.features.get("kanban")
        service.boards.create(BoardInfo(slug="garden", name="The garden"))
        question, review = await make(web, blocked), await make(web, reviewed, "garden")
        for title, assignee in (("Own", "@owner"), ("Of Eve", "@eve"), ("Of the agent", "default")):
            await add(web, NewTask(title=title, assignee=assignee))
        await add(web, NewTask(title="Idea", triage=True))
        # They appear without a reload, and are counted on every page.
        await page.wait("document.querySelector('#pending').textContent === '3'")
        await page.wait(f"document.querySelector('#waiting-{review}')")
        titles = "[...document.querySelectorAll('main .title')].map((one) => one.textContent)"
        assert sorted(await page.run(titles)) == ["Choose a color", "Own", "Write the imprint"]
        assert await page.text(f"#waiting-{question} em") == "green"
        assert not await page.run(f"document.querySelector('#waiting-{question} img')")

        await fill(page, f"#waiting-{question} textarea", "Green.")
        await press(page, f"#waiting-{question} .primary")
        await page.wait(f"!document.querySelector('#waiting-{question}')")
        answered = await read(web, question)
        assert answered.task.status is TaskStatus.READY
        assert (answered.comments[-1].author, answered.comments[-1].body) == ("owner", "Green.")

        assert "The garden" in await page.text(f"#waiting-{review}")
        await press(page, f"#waiting-{review} .primary")
        await page.wait(f"!document.querySelector('#waiting-{review}')")
        accepted = await read(web, review, "garden")
        assert accepted.task.status is TaskStatus.DONE
        await page.wait("document.querySelector('#pending').textContent === '1'")
        assert page.errors == []


async def test_looking_for_tasks_creates_no_board(tmp_path: Path):
    async with web_client(tmp_path) as one:
        assert (await one.get("/approvals"))[0] == 200
        assert not (one.web.app.home.root / "kanban.db").exists()


async def test_result_is_sent_back_with_a_reason(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        task = await make(web, reviewed)
        page = await window.page()
        await web.log_in(page, f"/board/tasks/{task}")
        await press(page, ".question [data-url*=return]")
        await page.wait("document.querySelector('#toasts .error')")
        assert (await read(web, task)).task.status is TaskStatus.REVIEW, "a reason is needed"
        await fill(page, ".question textarea", "The address is missing.")
        await press(page, ".question [data-url*=return]")
        await page.wait("!document.querySelector('.question')")
        found = await read(web, task)
        assert (found.task.status, found.task.assignee) == (TaskStatus.READY, "default")
        assert "The address is missing." in found.comments[-1].body
        assert ["400 (Bad Request)" in one for one in page.errors] == [True]


async def test_worker_is_stopped_and_archiving_is_undone(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        task = await make(web, lambda rows, now: claimed(rows, "Draw", now)[0])
        page = await window.page()
        await web.log_in(page, f"/board/tasks/{task}")
        await press(page, "[data-url*=reclaim]")
        await confirm(page)
        await page.wait("!document.querySelector('[data-url*=reclaim]')")
        assert (await read(web, task)).task.status is TaskStatus.READY
        await press(page, "[data-url*=archive]")
        await confirm(page)
        await page.wait("document.querySelector('[data-url*=undo]')")
        assert (await read(web, task)).task.status is TaskStatus.ARCHIVED
        await page.goto(f"{web.url}/board")
        assert await page.run("document.querySelectorAll('.task').length") == 0
        await page.goto(f"{web.url}/board?column=archived")
        await press(page, f"#task-{task} a")
        await page.wait("location.pathname.includes('tasks') && document.readyState === 'complete'")
        await press(page, "[data-url*=undo]")
        await page.wait("!document.querySelector('[data-url*=undo]')")
        assert (await read(web, task)).task.status is TaskStatus.READY
        await page.run(OPEN.format("'#events'"))
        assert "undone" in await page.text("#events")
        assert page.errors == []


async def test_dependencies_of_a_task_are_changed_on_its_page(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        first, second = [await add(web, NewTask(title=one)) for one in ("First", "Second")]
        page = await window.page()
        await web.log_in(page, f"/board/tasks/{second}")
        assert not await page.run("document.querySelector('.graph')")
        await page.run(OPEN.format("'#links'"))
        await press(page, "#links .primary")
        await page.wait("document.querySelectorAll('.graph a').length === 2")
        assert list((await read(web, second)).parents) == [first]
        assert (await read(web, second)).task.status is TaskStatus.TODO
        await page.run(OPEN.format("'#links'"))
        await press(page, "#links .danger")
        await page.wait("!document.querySelector('.graph')")
        assert list((await read(web, second)).parents) == []
        assert page.errors == []


async def test_file_of_a_task_is_added_downloaded_and_removed(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        task = await add(web, NewTask(title="Draw", assignee="@eve"))
        page = await window.page()
        await web.log_in(page, f"/board/tasks/{task}")
        await page.run(CHOSEN)
        link = "main a[download]"
        await page.wait(f"document.querySelector('{link}')")
        (file,) = (await read(web, task)).attachments
        assert (file.uploaded_by, file.size) == ("owner", 9)
        assert await page.text(link) == file.filename
        answer = f"fetch(document.querySelector('{link}').href)"
        assert await page.run(f"{answer}.then((one) => one.text())") == "two\nlines"
        kept = await page.run(f"{answer}.then((one) => one.headers.get('Content-Disposition'))")
        assert kept.startswith("attachment")
        await press(page, "main .danger[data-url*=files]")
        await confirm(page)
        await page.wait(f"!document.querySelector('{link}')")
        assert list((await read(web, task)).attachments) == []
        # The form offers who has the task now.
        await page.run(OPEN.format("'#edit'"))
        await fill(page, "#edit [name=title]", "Paint")
        await press(page, "#edit .primary")
        await page.wait("document.querySelector('h1').textContent === 'Paint'")
        assert (await read(web, task)).task.assignee == "@eve"
        assert page.errors == []
