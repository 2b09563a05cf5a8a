"""The web page in a real Chromium: conversations, lost connections, keyboard, size."""

from pathlib import Path

import pytest

from hermes.cron.job_changes import JobChange
from hermes.cron.operation import CronOperation
from hermes.kanban.lifecycle import Completion, complete_task
from hermes.kanban.service import BoardService
from hermes.schema.messages import Text
from hermes.session.conversation import SessionOptions
from hermes.testing.fake_openai.script import Call, Reply, Script
from support.chromium import Page, open_window
from support.web_content import make_tasks, store_messages
from support.web_page import IDLE, say, web_harness

pytestmark = pytest.mark.slow

MAX_BYTES = 150_000
MAX_REQUESTS = 12
MAX_TABS = 100
ESCALATED = {"command": "echo out > here.txt", "escalate": "outside", "reason": "to test"}


async def test_conversation_with_an_approval_survives_a_reload(browser: str, tmp_path: Path):
    script = Script(replies=[Reply("First this.", [Call("terminal", ESCALATED)]), Reply("Done.")])
    async with web_harness(tmp_path, script) as web, open_window(browser) as window:
        page = await window.page()
        await web.log_in(page)
        await say(page, "please <b>write</b> it")
        await page.wait("document.querySelector('.question button')")
        assert "echo out > here.txt" in await page.text(".question")
        await page.click("#message")
        await page.type("half a thought")
        address = str(await page.run("location.href"))

        await page.goto(address)
        await page.wait("document.querySelector('.question button')")
        assert await page.run("document.querySelector('#message').value") == "half a thought"
        other = await window.page()
        await other.goto(address)
        await other.click(".question button[data-answer=once]")

        for one in (page, other):
            await one.wait(f"document.body.textContent.includes('Done.') && {IDLE}")
            shown = await one.text("#log")
            for words in ("please <b>write</b> it", "First this.", "Done."):
                assert shown.count(words) == 1
            assert await one.run("document.querySelectorAll('.tool.done').length") == 1
            assert one.errors == []
        assert (tmp_path / "workspace" / "here.txt").read_text() == "out\n"
        await page.goto(address)
        assert (await page.text("#log")).count("Done.") == 1


async def test_lost_connection_loses_and_doubles_no_word(browser: str, tmp_path: Path):
    words = " ".join(f"w{number}" for number in range(150))
    script = Script(replies=[Reply(words, pace=0.02, chunk=7)])
    async with web_harness(tmp_path, script) as web, open_window(browser) as window:
        page, other = await window.page(), await window.page()
        await web.log_in(page)
        await say(page, "count")
        await page.wait("document.querySelector('.md.live')?.textContent.includes('w9')")
        await other.goto(str(await page.run("location.href")))
        web.drop_streams()
        await page.wait("document.body.classList.contains('offline')")

        for one in (page, other):
            await one.wait(f"{IDLE} && document.querySelector('.md')?.textContent.includes('w149')")
            assert await one.text(".md") == words
            assert await one.run("document.querySelectorAll('.entry.assistant').length") == 1
        await page.wait("!document.body.classList.contains('offline')")
        assert await page.run("!document.querySelector('#toasts .error')")


async def test_message_during_a_turn_is_queued_and_a_turn_is_stopped(browser: str, tmp_path: Path):
    slow = Reply("slow " * 400, pace=0.02)
    script = Script(replies=[slow, Reply("Second answer."), slow])
    async with web_harness(tmp_path, script) as web, open_window(browser) as window:
        page = await window.page()
        await web.log_in(page)
        await say(page, "first")
        await page.wait("document.querySelector('.md.live')")
        await page.run("document.querySelector('#mode').value = 'queue'")
        await say(page, "later")
        await page.wait("document.querySelector('#queue').textContent.includes('later')")
        await page.click("[data-action=stop]")
        await page.wait(f"{IDLE} && document.querySelector('#message').value === 'later'")
        assert "Stopped here." in await page.text("#log")

        await page.press("Enter")
        await page.wait(f"{IDLE} && document.body.textContent.includes('Second answer.')")
        await page.run("document.querySelector('.entry.user [data-action=edit]').click()")
        await page.wait("document.querySelector('#message').value === 'first'")
        await page.type(" again")
        await page.press("Enter")
        await page.wait("document.querySelectorAll('.entry.user').length === 1")
        await page.press("Escape")
        await page.wait(IDLE)


async def test_turn_of_another_surface_is_followed_live(browser: str, tmp_path: Path):
    script = Script(replies=[Reply("Hello."), Reply("From the terminal, word by word.", pace=0.05)])
    async with web_harness(tmp_path, script) as web, open_window(browser) as window:
        page = await window.page()
        await web.log_in(page)
        await say(page, "hi")
        await page.wait(f"document.body.textContent.includes('Hello.') && {IDLE}")
        terminal = web.app.new_conversation(SessionOptions(source="cli"))
        await terminal.resume_latest()
        async with web.in_background(terminal.submit([Text("typed elsewhere")], web.ignore)):
            await page.wait("document.querySelector('.md.live')")
            assert await page.run("document.querySelector('[data-action=stop]').hidden")
        await page.wait(f"document.body.textContent.includes('word by word.') && {IDLE}")
        assert (await page.text("#log")).count("typed elsewhere") == 1


async def tab_to(page: Page, selector: str) -> None:
    """Press Tab until the control has the focus."""
    for _ in range(MAX_TABS):
        await page.press("Tab")
        if await page.run(f"document.activeElement.matches('{selector}')"):
            return
    pytest.fail(f"{selector} is not reached")


async def test_conversation_and_task_need_only_the_keyboard(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        page = await window.page()
        await web.log_in(page)
        await page.wait("document.activeElement?.id === 'message'")
        await page.type("/hel")
        await page.wait("document.querySelector('#completion [aria-selected=true]')")
        await page.press("Tab")
        await page.press("Enter")
        await page.wait("document.querySelector('.entry.reply')?.textContent.includes('/help')")
        await page.press("k", control=True)
        await page.type("board")
        await page.press("Enter")
        await page.wait("location.pathname === '/board' && customElements.get('task-board')")
        await tab_to(page, "main summary")
        await page.press("Enter")
        await page.press("Tab")
        await page.type("Learn to fly")
        await page.press("Enter")
        await page.wait("document.querySelector('[data-status=ready] .task')")
        await tab_to(page, "[data-status=ready] .task a")
        await page.press("ArrowRight", shift=True)
        await page.wait("document.querySelector('[data-status=blocked] .task')")
        # The page may be loading the board once more, and would undo a choice.
        await page.goto(f"{web.url}/board")
        await tab_to(page, ".task select")
        await page.press("d")
        await page.press("Enter")
        await page.wait("document.querySelector('[data-status=done] .task')")


async def test_long_session_is_kept_in_few_nodes(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        session = await store_messages(web, [f"word {number}" for number in range(300)])
        page = await window.page()
        await web.log_in(page, f"/chat/{session}")
        count = "document.querySelectorAll('.entry').length"
        texts = "document.querySelector('#log').textContent"
        assert "word 299" in await page.run(texts)
        assert await page.run(count) <= 100
        while not await page.run("document.querySelector('[data-action=earlier]').hidden"):
            first = await page.run("document.querySelector('#log .entry').id")
            await page.run("document.querySelector('.scroll').scrollTo({top: 0})")
            await page.wait(f"document.querySelector('#log .entry').id !== '{first}'")
            assert await page.run(count) <= 300
            # What was at the top is still in view, and nothing jumps.
            place = f"document.getElementById('{first}').getBoundingClientRect().top"
            assert -800 < await page.run(place) < 800
        assert await page.run("document.getElementById('m-u0') !== null")
        assert "word 299" not in await page.run(texts)
        assert not await page.run("document.querySelector('[data-action=later]').hidden")
        await page.run("document.querySelector('[data-action=later]').click()")
        await page.wait("!document.getElementById('m-u0')")
        assert await page.run(count) <= 300
        await page.click("[data-action=to-end]")
        await page.wait(f"{texts}.includes('word 299')")
        assert await page.run("document.querySelector('[data-action=later]').hidden")
        await page.click("#message")
        await say(page, "one more")
        await page.wait(f"{texts}.includes('one more') && {IDLE}")


async def test_search_hit_opens_the_session_at_the_message(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        words = [f"word {number}" for number in range(300)]
        words[3], words[298] = "a needle", "a thimble"
        session = await store_messages(web, words)
        page = await window.page()
        await web.log_in(page)
        for sought, message in (("thimble", "m-u298"), ("needle", "m-u3")):
            await page.goto(f"{web.url}/sessions?q={sought}")
            await page.run("document.querySelector('#list .title').click()")
            await page.wait(f"location.pathname === '/chat/{session}'")
            await page.wait("document.querySelector('.entry.found')")
            found = await page.run("document.querySelector('.entry.found').textContent")
            assert sought in str(found)
            assert await page.run(f"document.getElementById('{message}') !== null")
            place = "document.querySelector('.entry.found').getBoundingClientRect()"
            await page.wait(f"{place}.bottom > 0 && {place}.top < innerHeight")
            assert await page.run("document.querySelectorAll('.entry').length") <= 300
        assert page.errors == []


async def test_completion_of_files_and_a_list_of_branches(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        (web.app.home.workspace / "notes.md").write_text("remember the milk")
        page = await window.page()
        await web.log_in(page)
        await page.wait("document.activeElement?.id === 'message'")
        await page.type("read @not")
        await page.wait("document.querySelector('#completion [aria-selected=true]')")
        await page.press("Tab")
        await page.wait("document.querySelector('#message').value === 'read @file:notes.md '")
        await page.press("Enter")
        await page.wait(f"document.querySelector('.assistant') && {IDLE}")
        assert b"remember the milk" in web.model.requests[-1].body
        first = await page.run("location.pathname")
        await say(page, "/branch other")
        await page.wait(f"location.pathname !== '{first}'")
        await page.click("#branches")
        await page.wait("document.querySelectorAll('dialog .family a').length === 2")
        await page.click(f"dialog a[href='{first}']")
        await page.wait(f"location.pathname === '{first}' && document.readyState === 'complete'")


async def test_page_out_of_sight_notifies_of_questions(browser: str, tmp_path: Path):
    script = Script([Reply(calls=[Call("terminal", ESCALATED)])])
    async with web_harness(tmp_path, script) as web, open_window(browser) as window:
        page = await window.page()
        record = """
            window.Notification = class extends EventTarget {
                static permission = 'default';
                static async requestPermission() { return (this.permission = 'granted'); }
                constructor(title, options) {
                    super();
                    (window.sent ??= []).push([title, options.tag]);
                }
            };
            document.hasFocus = () => false;
        """
        await page.call("Page.addScriptToEvaluateOnNewDocument", source=record)
        await web.log_in(page)
        await page.click("[data-action=notify]")
        await page.wait("document.querySelector('[data-action=notify][aria-pressed=true]')")
        await page.run("document.querySelector('#message').focus()")
        await say(page, "do it")
        await page.wait(
            "document.querySelector('[data-action=answer]') && window.sent?.length === 1"
        )
        title, session = await page.run("window.sent[0]")
        assert title == "Hermes has a question"
        assert await page.run("location.pathname") == f"/chat/{session}"
        await page.click("[data-action=notify]")
        await page.wait("document.querySelector('[data-action=notify][aria-pressed=false]')")
        await page.click("[data-answer=deny]")
        await page.wait(IDLE)


async def test_board_edits_several_tasks_and_shows_dependencies_cost_and_log(
    browser: str, tmp_path: Path
):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        first, second, third = await make_tasks(web)
        page = await window.page()
        await web.log_in(page, "/board")
        await page.wait("customElements.get('task-board')")
        assert (await page.text("#column-todo")).startswith("to do")
        await page.click(f"[data-select={second}]")
        await page.click(f"[data-select={third}]")
        assert await page.text("#selected") == "2 selected"
        await page.run("document.querySelector('#bulk [name=status]').value = 'blocked'")
        await page.run("document.querySelector('#bulk [name=priority]').value = '7'")
        await page.click("#bulk [type=submit]")
        await page.wait("document.querySelectorAll('[data-status=blocked] .task').length === 2")
        assert "priority 7" in await page.text(f"#task-{third}")
        assert await page.run("document.querySelector('#bulk').hidden")

        await page.goto(f"{web.url}/board/graph")
        places = "[...document.querySelectorAll('.graph rect')].map(e => +e.getAttribute('x'))"
        left, right = await page.run(places)
        assert left < right
        assert await page.run("document.querySelectorAll('.graph path').length") == 1
        await page.goto(f"{web.url}/board/tasks/{first}")
        shown = await page.text("main")
        assert "$0.25" in shown
        assert "Build walls" in shown
        await page.wait("document.querySelector('[data-follow]:checked')")
        # The page knows what it shows: a request for it is answered when the log has changed.
        tag = await page.run("document.querySelector('#task-log').dataset.tag")
        address = f"/board/tasks/{first}/log"
        assert await page.run(f"fetch('{address}').then(r => r.headers.get('ETag'))") == tag
        log = next(tmp_path.rglob(f"{first}.log"))
        log.write_text("mixing\npouring")
        await page.wait("document.querySelector('#task-log').textContent.includes('pouring')")
        assert page.errors == []

        # A change by somebody else appears without a reload.
        await page.goto(f"{web.url}/board")
        service: BoardService = web.app.features.get("kanban")
        await page.wait("document.querySelector('[data-status=running] .task')")
        await service.write(None, lambda rows: complete_task(rows, first, Completion(), 9))
        await page.wait(f"document.querySelector('[data-status=done] #task-{first}')")


async def test_problems_are_found_and_fixed_on_the_page(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        page = await window.page()
        await web.log_in(page, "/system")
        (tmp_path / ".env").write_text("SOME_TOKEN=x\n")
        (tmp_path / ".env").chmod(0o644)
        await page.click("#doctor")
        await page.wait_long("document.querySelector('#findings [data-action=fix]')")
        # What doctor cannot fix is fixed on another page.
        assert (
            await page.run("document.querySelector('#findings a.button')?.pathname") == "/settings"
        )
        await page.click("#findings [data-action=fix]")
        await page.wait_long("document.querySelector('#findings .live')?.textContent === 'fixed'")
        assert (tmp_path / ".env").stat().st_mode & 0o077 == 0


async def test_jobs_and_usage_are_drawn(browser: str, tmp_path: Path):
    limits = "limits:\n  usd_per_day: 5\n  usd_per_principal: 2\n"
    async with web_harness(tmp_path, config=limits) as web, open_window(browser) as window:
        cron: CronOperation = web.app.features.get("cron")
        await cron.service.create(JobChange(name="water", schedule="every 6h", prompt="water"))
        page = await window.page()
        await web.log_in(page)
        await say(page, "hello")
        await page.wait(f"document.querySelector('.assistant') && {IDLE}")
        await page.goto(f"{web.url}/jobs")
        assert await page.run("document.querySelectorAll('.chart circle').length") >= 3
        await page.goto(f"{web.url}/usage")
        shown = await page.text("main")
        assert "of $5.00" in shown
        assert "owner today" in shown
        assert await page.run("document.querySelectorAll('.meter').length") == 2
        assert page.errors == []


async def test_chat_page_is_small(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        page = await window.page()
        await web.log_in(page)
        page.requests.clear()
        page.sizes.clear()
        await page.call("Network.setCacheDisabled", cacheDisabled=True)
        await page.goto(f"{web.url}/chat/new")
        await page.wait("document.querySelector('hermes-chat').commands")
        assert len(page.requests) <= MAX_REQUESTS
        total = sum(page.sizes.values())
        assert 20_000 < total < MAX_BYTES
