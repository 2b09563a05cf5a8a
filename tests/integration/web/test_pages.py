"""The pages of settings, learning, usage and the system in a real Chromium."""

import sys
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from axe_core_python import __file__ as axe_package

from hermes.app.service.lock import own_record, take_lock
from hermes.app.service.status import GatewayState, PlatformState, write_state
from hermes.gateway.pairing import Pairing, PairingCode
from hermes.hooks.shell import HookConsents
from hermes.learning.memory import MemoryOperation, MemoryRequest, MemoryTarget
from hermes.learning.skills.editor import Authorship, SkillRequest, propose_request
from hermes.ports.ledger import Author
from hermes.ports.store import EnqueueItem, ItemStatus, QueueItem, RecordUsage
from hermes.schema.messages import Text, Usage, User
from hermes.session.conversation import SessionOptions
from hermes.testing.telegram.server import serve_telegram
from support.chromium import Page, open_window
from support.mcp_harness import SERVER_SCRIPT
from support.telegram import TOKEN, emulator
from support.web_client import web_client
from support.web_page import WebHarness, web_harness

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

AGENT = Authorship(author=Author.AGENT)
SKILL = "---\nname: tea\ndescription: How to make tea.\n---\nBoil **water**.\n"
ATTACK = "<img src=x onerror=canary()><script>canary()</script>"
SECRET = "s3cret-value-of-a-server"
PAGES = ("learning", "learning/skills/tea", "settings", "settings/channels",
         "settings/channels/telegram", "settings/channels/email", "settings/people",
         "settings/profiles", "settings/mcp", "settings/hooks", "sessions?family={session}",
         "usage?days=7", "logs?log=agent&hours=24", "system")  # fmt: skip


async def fill(page: Page, selector: str, words: str) -> None:
    """Replace the text of a field with the keyboard."""
    await page.wait(f"document.querySelector({_quoted(selector)})?.checkVisibility()")
    await page.run(f"document.querySelector({_quoted(selector)}).select()")
    await page.type(words) if words else await page.press("Delete")


async def press(page: Page, selector: str) -> None:
    """Reach a control by its focus and press Enter."""
    await page.wait(f"document.querySelector({_quoted(selector)})?.checkVisibility()")
    await page.run(f"document.querySelector({_quoted(selector)}).focus()")
    await page.press("Enter")


async def confirm(page: Page) -> None:
    """The dialog has the focus on its button."""
    await page.wait("document.activeElement?.value === 'ok'")
    await page.press("Enter")
    await page.wait("!document.querySelector('dialog[open]')")


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def remember(entry: str, by: Author = Author.AGENT) -> MemoryRequest:
    operation = MemoryOperation(action="add", content=entry)
    return MemoryRequest(target=MemoryTarget.MEMORY, operations=(operation,), by=by)


async def test_memory_is_edited_deleted_and_reverted(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        memory = web.app.learning.memory_store
        await memory.change(remember("Tea at four."))
        page = await window.page()
        await web.log_in(page, "/learning")
        await press(page, "#memory-0 summary")
        await fill(page, "#memory-0 textarea", "Tea at five.\nתה")
        await press(page, "#memory-0 [type=submit]")
        await page.wait("document.querySelector('#memory-0 .words').textContent.includes('five')")
        assert (await memory.read(MemoryTarget.MEMORY)).entries == ("Tea at five.\nתה",)
        last = (await web.app.learning.ledger.log())[-1].change
        assert (last.by, last.edits[0].before) == (Author.PERSON, b"Tea at four.")

        await press(page, f"#{last.id} summary")
        assert "-Tea at four." in await page.text(f"#{last.id} .diff")
        await press(page, f"#{last.id} [data-action=post]")
        await page.wait("document.querySelector('#memory-0 .words').textContent === 'Tea at four.'")
        await press(page, "#memory-0 [data-action=post]")
        await confirm(page)
        await page.wait("!document.querySelector('#memory-0')")
        assert (await memory.read(MemoryTarget.MEMORY)).entries == ()
        assert page.errors == []


async def test_proposals_are_diffs_and_can_be_edited_before_approval(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        learning = web.app.learning
        await learning.memory_store.change(remember("First."))
        asked = await learning.memory_store.propose(remember("Sceond.", Author.REVIEW))
        await learning.skill_editor.create("tea", SKILL, "", AGENT)
        patch = SkillRequest("patch", "tea", old_string="**water**", new_string="**milk**")
        refused = await propose_request(learning.skill_editor, patch, AGENT)
        page = await window.page()
        await web.log_in(page, "/learning")
        assert "+Sceond." in await page.text(f"#{asked.id} .diff")
        assert "+Boil **milk**." in await page.text(f"#{refused.id} .diff")
        await press(page, f"#{asked.id} summary")
        await fill(page, f"#{asked.id} textarea", "Second.")
        await press(page, f"#{asked.id} [type=submit]")
        await page.wait(f"!document.getElementById('{asked.id}')")
        await press(page, f"#{refused.id} .row [data-url$=reject]")
        await page.wait(f"!document.getElementById('{refused.id}')")
        entries = (await learning.memory_store.read(MemoryTarget.MEMORY)).entries
        assert entries == ("First.", "Second.")
        assert "**water**" in (tmp_path / "skills" / "tea" / "SKILL.md").read_text()


async def test_skill_is_edited_archived_and_restored(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        await web.app.learning.skill_editor.create("tea", SKILL, "", AGENT)
        file = tmp_path / "skills" / "tea" / "SKILL.md"
        page = await window.page()
        await web.log_in(page, "/learning/skills/tea")
        assert await page.text(".md strong") == "water"
        await press(page, "main details summary")
        await fill(page, "textarea", "no header")
        await press(page, "[type=submit]")
        await page.wait("document.querySelector('#toasts .error')")
        assert file.read_text() == SKILL

        await fill(page, "textarea", SKILL.replace("water", "milk"))
        await press(page, "[type=submit]")
        await page.wait("document.querySelector('.md strong').textContent === 'milk'")
        await press(page, "[data-url$=archive]")
        await confirm(page)
        await page.wait("location.pathname === '/learning' && document.readyState === 'complete'")
        assert not file.exists()
        last = (await web.app.learning.ledger.log())[-1].change
        await press(page, f"#{last.id} [data-action=post]")
        await page.wait("document.querySelector(\"a[href='/learning/skills/tea']\")")
        assert "milk" in file.read_text()


async def test_person_is_paired_made_owner_and_removed(browser: str, tmp_path: Path):
    config = "platforms:\n  telegram: {enabled: true, extra: {allow_from: ['${BOSS}', '1002']}}\n"
    async with web_harness(tmp_path, config=config) as web, open_window(browser) as window:
        (tmp_path / ".env").write_text("BOSS=1001\n")
        pairing = Pairing(web.app.home.pairing, web.app.clock)
        asked = pairing.request("telegram", "2003", "Noor")
        assert isinstance(asked, PairingCode)
        page = await window.page()
        await web.log_in(page, "/settings/people")
        await fill(page, "[name=code]", "AAAA2222")
        await press(page, ".inline [type=submit]")
        await page.wait("document.querySelector('#toasts .error')")
        await fill(page, "[name=code]", asked.code.lower())
        await press(page, ".inline [type=submit]")
        person = "[...document.querySelectorAll('.cards > li')].find(e => e.matches('li') && "
        await page.wait(f"{person} e.textContent.includes('Noor') && e.querySelector('button'))")
        assert [one.user for one in pairing.paired_users()] == ["2003"]

        buttons = "[data-body*='\"2003\"']"
        await press(page, f"{buttons}[data-url$=role]")
        await confirm(page)
        await page.wait(f"document.querySelector(\"{buttons.replace(chr(34), chr(92) + chr(34))}\")"
                        ".closest('li').querySelector('.live')")  # fmt: skip
        assert "allow_admin_from" in (tmp_path / "config.yaml").read_text()
        await press(page, f"{buttons}[data-url$=remove]")
        await confirm(page)
        await page.wait("!document.querySelector('main').textContent.includes('Noor')")
        assert pairing.paired_users() == []

        await press(page, "[data-body*='\"1002\"'][data-url$=remove]")
        await confirm(page)
        await page.wait("!document.querySelector('main').textContent.includes('1002')")
        stored = (tmp_path / "config.yaml").read_text()
        assert "${BOSS}" in stored
        assert "allow_admin_from" not in stored


async def test_channel_is_stored_only_if_the_platform_accepts_it(browser: str, tmp_path: Path):
    async with serve_telegram(emulator()) as telegram:
        config = f"platforms:\n  telegram:\n    extra: {{base_url: '{telegram.url}'}}\n"
        async with web_harness(tmp_path, config=config) as web, open_window(browser) as window:
            page = await window.page()
            await web.log_in(page, "/settings/channels")
            await press(page, "a[href='/settings/channels/telegram']")
            await page.wait("location.pathname.endsWith('telegram') && window.Notification")
            await fill(page, "[name=secret]", "4242:wrong")
            await press(page, "section [type=submit]")
            await page.wait("document.querySelector('#toasts .error')")
            assert not (tmp_path / ".env").exists()
            await fill(page, "[name=secret]", TOKEN)
            await fill(page, "[name=ALLOWED_USERS]", "1001, 1002")
            await press(page, "section [type=submit]")
            await page.wait(
                "document.querySelector('#toasts').textContent.includes('@hermes_test')"
            )
            stored = (tmp_path / ".env").read_text()
            assert f"TELEGRAM_BOT_TOKEN={TOKEN}" in stored
            assert "TELEGRAM_ALLOWED_USERS=1001,1002" in stored
            await page.goto(f"{web.url}/settings/channels/telegram")
            assert TOKEN not in await page.run("document.documentElement.outerHTML")


async def test_stored_secret_is_not_sent_to_another_address(tmp_path: Path):
    async with web_client(tmp_path) as one:
        (tmp_path / ".env").write_text(
            "MATTERMOST_TOKEN=stored\nMATTERMOST_URL=http://127.0.0.1:9\n"
        )
        moved = {"MATTERMOST_URL": "http://127.0.0.1:10"}
        status, said = await one.post("/settings/channels/mattermost", moved)
        assert (status, "missing" in said) == (400, True), said
        status, said = await one.post(
            "/settings/channels/mattermost", {"MATTERMOST_URL": "http://127.0.0.1:9"}
        )
        assert "missing" not in said, "the stored token is used at its own address"


async def test_state_of_a_channel_is_live(browser: str, tmp_path: Path):
    config = "platforms:\n  telegram: {enabled: true}\n"
    async with web_harness(tmp_path, config=config) as web, open_window(browser) as window:
        page, home = await window.page(), web.app.home
        await web.log_in(page, "/settings/channels")
        assert "set up" in await page.text("#list li")
        record = own_record(home, web.app.clock.now())
        lock = take_lock(home, record)
        try:
            for state in (
                PlatformState(state="connected"),
                PlatformState(state="retrying", error_code="offline", error_message="No network."),
            ):
                written = GatewayState(
                    pid=record.pid, gateway_state="running", platforms={"telegram": state}
                )
                write_state(home.gateway_state, written)
                kind = "bad" if state.error_code else "live"
                await page.wait(f"document.querySelector('#list .{kind}')?.textContent === "
                                f"'{state.state}'")  # fmt: skip
            assert "No network." in await page.text("#list li")
        finally:
            lock.release()


async def test_mcp_server_is_added_tried_and_removed(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        page = await window.page()
        await web.log_in(page, "/settings/mcp")
        await press(page, "main details summary")
        await fill(page, "[name=name]", "play")
        await fill(page, "[name=command]", f"{sys.executable} {SERVER_SCRIPT}")
        await fill(page, "[name=secrets]", f"PLAYGROUND={tmp_path}\nTOKEN={SECRET}")
        await press(page, "form [type=submit]")
        await page.wait("document.querySelector('[data-url$=\"play/test\"]')")
        assert SECRET in (tmp_path / "config.yaml").read_text()
        assert SECRET not in await page.run("document.documentElement.outerHTML")
        await press(page, "[data-url$='play/test']")
        await page.wait_long("document.querySelector('#test-play').textContent.includes('__add')")
        await press(page, "[data-url$='play/disable']")
        await page.wait("document.querySelector('[data-url$=\"play/enable\"]')")
        await press(page, "[data-url$='play/remove']")
        await confirm(page)
        await page.wait("document.querySelector('main .empty')")
        assert SECRET not in (tmp_path / "config.yaml").read_text()
        assert page.errors == []


async def test_hook_runs_only_after_it_was_accepted(browser: str, tmp_path: Path):
    config = "hooks:\n  on_session_end: [{command: '/usr/bin/false ${SOME_TOKEN}'}]\n"
    async with web_harness(tmp_path, config=config) as web, open_window(browser) as window:
        (tmp_path / ".env").write_text(f"SOME_TOKEN={SECRET}\n")
        page = await window.page()
        await web.log_in(page, "/settings")
        await page.press("k", control=True)
        await page.type("hooks")
        await page.press("Enter")
        await page.wait("location.pathname === '/settings/hooks' && "
                        "document.readyState === 'complete'")  # fmt: skip
        await press(page, "main details summary")
        await fill(page, "[name=command]", "/usr/bin/true")
        await press(page, "form [type=submit]")
        await page.wait("document.querySelectorAll('main .cards > li').length === 2")
        # The hooks are in the order of their events.
        await press(page, "[data-url$=accept]")
        await confirm(page)
        await page.wait("document.querySelector('main .tag.live')")
        consents = HookConsents(web.app.home.shell_hooks)
        assert [one.command for one in consents.all()] == ["/usr/bin/true"]
        shown = await page.run("document.documentElement.outerHTML")
        assert "${SOME_TOKEN}" in shown
        assert SECRET not in shown
        await press(page, "[data-url$=revoke]")
        await page.wait("!document.querySelector('main .tag.live')")
        assert list(consents.all()) == []
        await press(page, "[data-url$=remove]")
        await confirm(page)
        await page.wait("document.querySelectorAll('main .cards > li').length === 1")
        stored = (tmp_path / "config.yaml").read_text()
        assert "/usr/bin/true" not in stored
        assert "${SOME_TOKEN}" in stored


async def test_profile_is_copied_without_its_credentials_and_deleted(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        (tmp_path / ".env").write_text(f"TELEGRAM_BOT_TOKEN={TOKEN}\n")
        page = await window.page()
        await web.log_in(page, "/settings/profiles")
        await press(page, "main details summary")
        await fill(page, "[name=name]", "work")
        await page.run("document.querySelector('[name=clone]').value = 'default'")
        await press(page, "form [type=submit]")
        await page.wait("document.querySelector('[data-url$=\"work/delete\"]')")
        assert TOKEN not in (tmp_path / "profiles" / "work" / ".env").read_text()
        assert (
            await page.run("document.querySelectorAll('[data-url$=\"default/delete\"]').length")
            == 0
        )
        refused = await page.run(
            "fetch('/settings/profiles/default/delete', {method: 'POST', body: '{}', headers: "
            "{'Content-Type': 'application/json', 'X-CSRF-Token': "
            "localStorage.getItem('hermes-csrf')}}).then(r => r.status)"
        )
        assert refused == 400
        await press(page, "[data-url$='work/delete']")
        await confirm(page)
        await page.wait("!document.querySelector('[data-url$=\"work/delete\"]')")
        assert not (tmp_path / "profiles" / "work").exists()


async def test_message_that_was_given_up_is_sent_again_or_discarded(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        store = web.app.store
        await store.workers.register()
        for key in ("k1", "k2"):
            body = msgspec.Raw(msgspec.json.encode({"text": "private words"}))
            item = QueueItem(key=key, queue="outbox:telegram", topic=f"chat-{key}", body=body)
            await store.commit(EnqueueItem(item))
            await store.queues.park(key, "no such chat")
        page = await window.page()
        await web.log_in(page, "/system")
        shown = await page.text("#state")
        assert "this process" in shown
        assert "no such chat" in shown
        assert "private words" not in shown
        await press(page, "[data-body*='\"k1\"']")
        await page.wait("!document.querySelector('#state').textContent.includes('chat-k1')")
        assert (await store.queues.status("k1"))[0] is ItemStatus.WAITING
        await press(page, "[data-body*='\"k2\"'][data-confirm]")
        await confirm(page)
        await page.wait("!document.querySelector('#state').textContent.includes('chat-k2')")
        assert (await store.queues.status("k2"))[0] is ItemStatus.DONE


async def session_of(web: WebHarness, title: str, **options: str) -> str:
    conversation = web.app.new_conversation(SessionOptions(source="web", **options))
    await conversation.begin_with([User("u1", (Text(title),))])
    return conversation.session.id


async def test_usage_is_charted_by_day_person_and_model(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        session, now = await session_of(web, "tea"), web.app.clock.now()
        for days, model in ((0, "small"), (3, "large"), (60, "old")):
            at = now - timedelta(days=days)
            usage = Usage(1000, 100, 500)
            await web.app.store.commit(RecordUsage(session, "r", model, "p", usage, 0.25, at))
        page = await window.page()
        await web.log_in(page, "/usage")
        shown = await page.text("main")
        assert "$0.50" in shown
        assert "p/old" not in shown
        drawn = "[...document.querySelectorAll('.chart rect:not(.cached)')]"
        titles = await page.run(f"{drawn}.map(e => e.textContent).filter(t => t.includes('1,100'))")
        # Two days and two models.
        assert len(titles) == 4
        await press(page, "a[href='?days=90']")
        await page.wait("document.querySelector('main').textContent.includes('p/old')")


async def test_sessions_are_filtered_by_day_and_show_their_branches(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        await session_of(web, "green tea")
        page = await window.page()
        await web.log_in(page, "/sessions")
        await page.run("document.querySelector('[name=to]').value = '2001-01-01'")
        await page.run("document.querySelector('[name=to]').dispatchEvent("
                       "new Event('input', {bubbles: true}))")  # fmt: skip
        await page.wait("!document.querySelector('#list .cards')")
        await page.goto(f"{web.url}/sessions?q=tea&from=2001-01-01")
        assert "green" in await page.text("#list")
        await page.goto(f"{web.url}/sessions?q=tea&to=2001-01-01")
        assert "green" not in await page.text("#list")
        await page.goto(f"{web.url}/sessions")
        await press(page, "#list a[href*='family=']")
        await page.wait("location.search.includes('family') && document.readyState === 'complete'")
        assert "/branch" in await page.text("#list")


async def test_new_pages_are_accessible_and_show_attacks_as_text(browser: str, tmp_path: Path):
    config = msgspec.json.encode({
        "platforms": {"telegram": {"enabled": True, "extra": {"allow_from": [ATTACK, "*"]}}},
        "mcp_servers": {"play": {"command": ATTACK}, "off": {"url": "http://x", "enabled": False}},
        "hooks": {"pre_tool_call": [{"command": ATTACK, "matcher": ATTACK}]},
    }).decode()  # fmt: skip
    axe = (Path(axe_package).parent / "axe.min.js").read_text()
    async with web_harness(tmp_path, config=config) as web, open_window(browser) as window:
        learning, found = web.app.learning, list[str]()
        await learning.memory_store.change(remember(f"Tea {ATTACK}"))
        await learning.memory_store.propose(remember(f"More {ATTACK}"))
        await learning.skill_editor.create("tea", f"{SKILL}\n{ATTACK}\n", "", AGENT)
        Pairing(web.app.home.pairing, web.app.clock).request("telegram", "2003", ATTACK)
        session = await session_of(web, ATTACK)
        page = await window.page()
        await page.call("Page.addScriptToEvaluateOnNewDocument",
                        source="window.canary = () => { window.ran = true }")  # fmt: skip
        await web.log_in(page, "/learning")
        for place, path in enumerate(PAGES):
            await page.goto(f"{web.url}/{path.format(session=session)}")
            await page.run("document.querySelectorAll('main details').forEach(e => e.open = true)")
            assert not await page.run("window.ran"), path
            theme = ("light", "dark")[place % 2]
            await page.run(f"document.documentElement.dataset.theme = '{theme}'")
            await page.run(axe)
            tags = "{runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']}"
            bad = await page.run(f"axe.run('main', {tags}).then(r => r.violations)")
            found += [f"{path} {theme} {one['id']}: {one['nodes'][0]['html'][:200]}" for one in bad]
            await page.resize(390, 844)
            wide = await page.run("document.documentElement.scrollWidth > 390")
            assert not wide, f"{path} scrolls sideways on a phone"
            await page.resize(1280, 800)
            assert page.errors == []
        assert found == []
