"""The chat in a real Chromium: tool cards, questions, files, steering, models, directions."""

from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from hermes.app.build import open_app
from hermes.app.options import AppOptions
from hermes.config.home import resolve_home
from hermes.schema.errors import UsageError
from hermes.schema.messages import Assistant, Result, Stop, Text, ToolCall, User
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SessionFilter
from hermes.session.conversation import SessionOptions
from hermes.testing.fake_openai.script import Call, Reply, Script
from support.api_server import api_env
from support.chromium import Page, open_window
from support.polling import wait_until
from support.web_page import IDLE, say, web_harness

pytestmark = pytest.mark.slow

ESCALATED = {"command": "echo out > here.txt", "escalate": "outside", "reason": "to test"}
CLARIFY = {"question": "Which **tea**?", "choices": ["green", "black"]}
GIVE = """(() => {
    const given = new DataTransfer(), bubbles = true, cancelable = true;
    for (const [name, type, data] of %s) {
        given.items.add(new File([Uint8Array.from(data)], name, { type }));
    }
    const event = '%s' === 'paste'
        ? new ClipboardEvent('paste', { clipboardData: given, bubbles, cancelable })
        : new DragEvent('drop', { dataTransfer: given, bubbles, cancelable });
    document.querySelector('#message').dispatchEvent(event);
})()"""
NOTES = ("notes.txt", "text/plain", b"remember the milk")
DATA = ("data.bin", "application/octet-stream", b"\0\1\xff")
BUBBLES = "[...document.querySelectorAll('.bubble')]"
LEFT = """(() => {
    const element = document.querySelector('%s'), range = document.createRange();
    range.selectNodeContents(element);
    return range.getBoundingClientRect().left - element.getBoundingClientRect().left;
})()"""
"""How far the text of an element is from its left edge."""
COPY = """(async () => {
    let copied;
    navigator.clipboard.writeText = async (words) => { copied = words };
    document.querySelector('%s').click();
    await 0;
    return copied;
})()"""
BOTH = """Ένα: **two**.

مرحبا بك، هذا نص عربي.

This is English.

```py
x = 1
```
"""


async def give(page: Page, kind: str, *files: tuple[str, str, bytes]) -> None:
    """Drop or paste files into the page, and wait until they are attached."""
    before = await page.run("document.querySelectorAll('#files li').length")
    parts = [(name, media_type, list(data)) for name, media_type, data in files]
    await page.run(GIVE % (msgspec.json.encode(parts).decode(), kind))
    await page.wait(f"document.querySelectorAll('#files li').length === {before + len(files)}")


async def choose(page: Page, selector: str, label: str) -> None:
    """Choose an option of a list, as a person does."""
    chosen = f"[...list.options].find((one) => [one.text, one.value].includes('{label}')).value"
    await page.run(f"""(() => {{
        const list = document.querySelector('{selector}');
        list.value = {chosen};
        list.dispatchEvent(new Event('change', {{ bubbles: true }}));
    }})()""")


async def test_card_opens_and_a_question_is_answered_with_a_button(browser: str, tmp_path: Path):
    calls = [Call("terminal", {"command": "seq 2 3"}), Call("clarify", CLARIFY)]
    script = Script(replies=[Reply(calls=[one]) for one in (*calls, calls[1])])
    async with web_harness(tmp_path, script) as web, open_window(browser) as window:
        page = await window.page()
        await web.log_in(page)
        await say(page, "tea")
        await page.wait("document.querySelector('.question strong')?.textContent === 'tea'")
        assert not await page.run("document.querySelector('.tool .body').checkVisibility()")
        await page.click(".tool summary")
        shown = str(await page.run("document.querySelector('.tool').innerText"))
        assert "seq 2 3" in shown
        assert "\n2\n3\n" in shown
        assert await page.run(r"/^\d+\.\d s$/.test(document.querySelector('.took').textContent)")
        # The view follows the end, so that what a pointer aims at may move.
        await page.run("document.querySelector('[data-answer=green]').click()")
        await page.wait("document.querySelector('.question.done')?.textContent.includes('green')")

        await page.wait("document.querySelector('.question:not(.done) input')?.focus() || "
                        "document.activeElement?.name === 'answer'")  # fmt: skip
        await page.type("white")
        await page.press("Enter")
        await page.wait(f"document.querySelectorAll('.question.done').length === 2 && {IDLE}")
        assert b"white" in web.model.requests[-1].body
        assert page.errors == []


async def test_files_are_dropped_and_pasted_and_stay_when_words_are_edited(
    browser: str, tmp_path: Path
):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        page = await window.page()
        await web.log_in(page)
        await give(page, "drop", NOTES, DATA)
        await page.press("Enter")
        await page.wait(f"document.querySelector('.assistant') && {IDLE}")
        # What is in a file was not typed.
        assert await page.text(".bubble") == "(no text)attached: @notes.txtdata.bin"
        assert b"remember the milk" in web.model.requests[-1].body

        await give(page, "paste", NOTES)
        await page.type("what is thus")
        await page.press("Enter")
        await page.wait(f"{BUBBLES}.length === 2 && {IDLE}")
        edit = f"{BUBBLES}[1].parentNode.querySelector('[data-action=edit]').click()"
        await page.run(edit)
        await page.wait("!document.querySelector('#editing').hidden")
        await page.run("document.querySelector('#editing button').click()")
        assert await page.run("document.querySelector('#editing').hidden")
        await page.run(edit)
        await page.run("document.querySelector('#message').setSelectionRange(10, 11)")
        await page.type("i")
        await page.press("Enter")
        await page.wait(f"{BUBBLES}[1]?.textContent.includes('what is this') && {IDLE}")
        await page.run(f"{BUBBLES}[1].parentNode.querySelector('[data-action=retry]').click()")
        await wait_until(lambda: len(web.model.requests) == 4)
        await page.wait(f"document.querySelectorAll('.assistant').length === 2 && {IDLE}")
        assert await page.run(f"{BUBBLES}[1].textContent") == "what is thisattached: @notes.txt"
        assert web.model.requests[-1].body.count(b"remember the milk") == 2
        assert page.errors == []


async def test_steered_turn_keeps_queued_messages_after_reload_and_stop(
    browser: str, tmp_path: Path
):
    script = Script(replies=[
        Reply(calls=[Call("terminal", {"command": "true"})], gate="steered"),
        Reply("Milk it is."),
        Reply("Never.", gate="never"),
    ])  # fmt: skip
    async with web_harness(tmp_path, script) as web, open_window(browser) as window:
        page = await window.page()
        await web.log_in(page)
        await say(page, "tea")
        await page.wait("!document.querySelector('#mode').hidden")
        await say(page, "with milk")
        await page.wait("document.querySelector('#queue').textContent === 'with milk' && "
                        "!document.querySelector('.sending')")  # fmt: skip
        web.model.open_gate("steered")
        await page.wait(f"document.body.textContent.includes('Milk it is.') && {IDLE}")
        assert b"with milk" in web.model.requests[1].body
        assert await page.run("document.querySelector('#queue').hidden")

        await say(page, "coffee")
        await page.wait("!document.querySelector('#mode').hidden")
        await choose(page, "#mode", "queue")
        await say(page, "with sugar")
        await page.wait("document.querySelector('#queue').textContent === 'with sugar' && "
                        "!document.querySelector('.sending')")  # fmt: skip
        await page.goto(str(await page.run("location.href")))
        await page.wait("document.querySelector('#queue').textContent === 'with sugar'")
        await page.wait("document.activeElement?.id === 'message'")
        await page.type("and a spoon")
        await page.press("Escape")
        value = "document.querySelector('#message').value"
        await page.wait(f"{IDLE} && {value}.includes('sugar')")
        assert await page.run(value) == "with sugar\nand a spoon"
        assert page.errors == []


async def test_message_is_sent_once_and_kept_while_offline(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        page = await window.page()
        await web.log_in(page)
        await page.wait("document.activeElement?.id === 'message'")
        await page.set_offline(True)
        await page.type("first")
        await page.press("Enter")
        await page.wait("document.querySelector('#toasts .error')")
        assert await page.run("document.querySelector('#message').value") == "first"
        await page.set_offline(False)
        # Enter twice, and the next words before the answer.
        await page.run("""(() => {
            const form = document.querySelector('.composer');
            form.requestSubmit();
            form.requestSubmit();
            document.querySelector('#message').value += 'next';
        })()""")
        await page.wait(f"document.querySelector('.assistant') && {IDLE}")
        assert await page.run(f"{BUBBLES}.map(e => e.textContent)") == ["first"]
        assert await page.run("document.querySelector('#message').value") == "next"
        archive = web.app.store.archive_for(OWNER)
        assert len(await archive.list(SessionFilter(), 5)) == 1


async def test_model_is_chosen_before_the_first_message_and_a_profile(browser: str, tmp_path: Path):
    config = "fallback_providers: [other-model, unknown-model]\n"
    script = Script(models=("mock-model", "other-model"))
    async with web_harness(tmp_path, script, config=config) as web, open_window(browser) as window:
        web.server.attach("work", web.app)
        page = await window.page()
        await web.log_in(page)
        await choose(page, "#model", "unknown-model")
        await page.wait("document.querySelector('#toasts .error')")
        name = "document.querySelector('#model').selectedOptions[0].text"
        assert await page.run(name) == "openai/mock-model"
        await choose(page, "#model", "other-model")
        await page.wait("document.querySelector('.reply')?.textContent.includes('other-model')")
        await page.run("document.querySelector('#message').focus()")
        await say(page, "hello")
        await page.wait(f"document.querySelector('.assistant') && {IDLE}")
        assert b'"model":"other-model"' in web.model.requests[-1].body
        await page.goto(str(await page.run("location.href")))
        assert await page.run(name) == "openai/other-model"
        await choose(page, "[data-action=profile]", "work")
        await page.wait("location.pathname === '/p/work/chat/new'")


async def test_enter_breaks_the_line_on_a_touch_screen(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        page = await window.page(width=390)
        await page.call("Emulation.setTouchEmulationEnabled", enabled=True)
        await web.log_in(page)
        await say(page, "tea")
        await page.type("and milk")
        assert await page.run("document.querySelector('#message').value") == "tea\nand milk"
        await page.click(".composer [type=submit]")
        await page.wait(f"document.querySelector('.assistant') && {IDLE}")
        await page.run("document.querySelector('#message').focus()")
        await page.type("more")
        await page.press("Enter", control=True)
        await page.wait(f"document.querySelectorAll('.assistant').length === 2 && {IDLE}")
        assert await page.run(f"{BUBBLES}.map((one) => one.textContent)") == [
            "tea\nand milk", "more",
        ]  # fmt: skip
        await page.goto(f"{web.url}/board")
        names_keys = "document.querySelector('#board-hint span').checkVisibility()"
        assert not await page.run(names_keys)
        await page.call("Emulation.setTouchEmulationEnabled", enabled=False)
        assert await page.run(names_keys)
        assert page.errors == []


async def test_models_of_the_provider_are_listed_once_the_list_is_opened(
    browser: str, tmp_path: Path
):
    script = Script(models=("mock-model", "green-model", "black-model"))
    async with web_harness(tmp_path, script) as web, open_window(browser) as window:
        page = await window.page()
        await web.log_in(page)
        options = "[...document.querySelector('#model').options].map((one) => one.text)"
        assert await page.run(options) == ["openai/mock-model"]
        assert not web.model.others
        await page.run("document.querySelector('#model').focus()")
        await page.wait(f"{options}.length === 3")
        assert await page.run(options) == ["openai/mock-model", "black-model", "green-model"]
        await choose(page, "#model", "green-model")
        await page.wait("document.querySelector('.reply')?.textContent.includes('green-model')")
        count = len(web.model.others)
        await page.run("fetch('/chat/models').then((answer) => answer.json())")
        assert len(web.model.others) == count > 0, "the answer is kept"
        assert page.errors == []


async def test_each_paragraph_has_its_own_direction_and_copies_are_clean(
    browser: str, tmp_path: Path
):
    async with web_harness(tmp_path, Script([Reply(BOTH)])) as web, open_window(browser) as window:
        page = await window.page()
        await web.log_in(page)
        await say(page, "سؤال")
        await page.wait(f"document.querySelector('.md pre') && {IDLE}")
        assert await page.run(LEFT % ".md p:nth-child(2)") > 100
        assert await page.run(LEFT % ".md p:nth-child(3)") < 5
        await page.run("document.querySelector('.md').dir = 'rtl'")
        assert await page.run(LEFT % ".md p:nth-child(3)") < 5
        assert await page.run(LEFT % ".md pre") < 20
        assert await page.run(COPY % "figure [data-action=copy]") == "x = 1\n"
        answer = COPY % ".entry > .actions [data-action=copy]"
        assert await page.run(answer) == BOTH
        await page.goto(str(await page.run("location.href")))
        assert await page.run(answer) == BOTH, "also from a stored answer"


async def test_branch_begins_after_the_answer_that_was_chosen(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        old = web.app.new_conversation(SessionOptions(source="web"))
        step = Assistant("a0", (ToolCall("c", "clock", Raw(b"{}")),), Stop.TOOLS)
        answers = [Assistant(f"a{n}", (Text(f"Answer {n}."),), Stop.END) for n in (1, 2)]
        questions = [User(f"u{n}", (Text(f"question {n}"),)) for n in (1, 2)]
        result = Result("r", "c", (Text("noon"),))
        await old.begin_with([questions[0], step, result, answers[0], questions[1], answers[1]])
        page = await window.page()
        await web.log_in(page)
        await page.goto(f"{web.url}/chat/{old.session.id}")
        await page.click("[data-message='a1'] [data-action=branch]")
        await page.wait(f"location.pathname !== '/chat/{old.session.id}' && "
                        "document.querySelector('[data-message=a1]')")  # fmt: skip
        assert "question 2" not in await page.text("#log")
        (branch,) = await old.archive.list(SessionFilter(parent=old.session.id))
        kept = [row.message.id for row in await old.archive.messages(branch.session.id)]
        assert kept == ["u1", "a0", "r", "a1"]
        assert len(await old.messages()) == 6
        with pytest.raises(UsageError, match="finished answer"):
            await old.branch(last="a0")
        assert page.errors == []


async def test_question_of_another_process_is_shown_and_answered(browser: str, tmp_path: Path):
    script = Script(replies=[Reply(calls=[Call("terminal", ESCALATED)]), Reply("Done.")])
    async with web_harness(tmp_path, script) as web, open_window(browser) as window:
        env = api_env(tmp_path, web.model.url)
        options = AppOptions(workspace=str(tmp_path / "workspace"), source="cli")
        async with open_app(resolve_home(env), env, options) as other:
            terminal = other.new_conversation(SessionOptions(source="cli", attended=True))
            await terminal.begin_with([User("u0", (Text("earlier"),))])
            page, approvals = await window.page(), await window.page()
            await web.log_in(approvals, "/approvals")
            await approvals.goto(f"{web.url}/approvals")
            await page.goto(f"{web.url}/chat/{terminal.session.id}")
            async with web.in_background(terminal.submit([Text("please")], web.ignore)):
                await page.wait("document.querySelector('.question button')")
                await approvals.call("Page.bringToFront")
                await approvals.wait("document.querySelector('.question button')")
                await approvals.wait("document.querySelector('#pending').textContent === '1'")
                assert await approvals.text(".question code") == "echo out > here.txt"
                await approvals.click("[data-answer=once]")
                await approvals.wait("!document.querySelector('.question')")
            await page.call("Page.bringToFront")
            await page.wait(f"document.body.textContent.includes('Done.') && {IDLE}")
            assert (await page.text("#log")).count("please") == 1
