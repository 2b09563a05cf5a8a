"""The pages of settings, learning, usage and the system in a real Chromium."""

import sys
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from emulators.irc.server import serve_irc
from emulators.irc.state import EmulatedIrc
from emulators.telegram.server import serve_telegram
from hermes.app.service.lock import own_record, take_lock
from hermes.app.service.status import GatewayState, PlatformState, write_state
from hermes.cron.job_changes import JobChange
from hermes.cron.operation import CronOperation
from hermes.gateway.pairing import Pairing, PairingCode
from hermes.hooks.shell import HookConsents
from hermes.learning.memory import MemoryTarget
from hermes.learning.skills.editor import SkillRequest, propose_request
from hermes.ports.jobs import Fire, FireState, SaveFire
from hermes.ports.ledger import Author
from hermes.ports.store import EnqueueItem, ItemStatus, QueueItem, RecordUsage
from hermes.schema.messages import Text, Usage, User
from hermes.session.conversation import SessionOptions
from hermes.web.pages.sessions import MAX_HITS
from support.chromium import Page, open_window
from support.mcp_harness import SERVER_SCRIPT
from support.telegram import TOKEN, emulator
from support.web_client import web_client
from support.web_content import AGENT, SKILL, remember, session_of
from support.web_page import confirm, fill, quoted, web_harness

pytestmark = pytest.mark.slow

SECRET = "s3cret-value-of-a-server"


async def press(page: Page, selector: str) -> None:
    """Reach a control by its focus and press Enter."""
    await page.wait(f"document.querySelector({quoted(selector)})?.checkVisibility()")
    await page.run(f"document.querySelector({quoted(selector)}).focus()")
    await page.press("Enter")


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
        proposal = await learning.memory_store.propose(remember("Sceond.", Author.REVIEW))
        approved = await learning.memory_store.propose(remember("Third.", Author.REVIEW))
        await learning.skill_editor.create("tea", SKILL, "", AGENT)
        patch = SkillRequest("patch", "tea", old_string="**water**", new_string="**milk**")
        refused = await propose_request(learning.skill_editor, patch, AGENT)
        page = await window.page()
        await web.log_in(page, "/learning")
        assert "+Sceond." in await page.text(f"#{proposal.id} .diff")
        assert "+Boil **milk**." in await page.text(f"#{refused.id} .diff")
        await press(page, f"#{proposal.id} summary")
        await fill(page, f"#{proposal.id} textarea", "Second.")
        await press(page, f"#{proposal.id} [type=submit]")
        await page.wait(f"!document.getElementById('{proposal.id}')")
        await press(page, f"#{approved.id} .row [data-url$=accept]")
        await page.wait(f"!document.getElementById('{approved.id}')")
        await press(page, f"#{refused.id} .row [data-url$=reject]")
        await page.wait(f"!document.getElementById('{refused.id}')")
        entries = (await learning.memory_store.read(MemoryTarget.MEMORY)).entries
        assert entries == ("First.", "Second.", "Third.")
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
        request = pairing.request("telegram", "2003", "Noor")
        assert isinstance(request, PairingCode)
        page = await window.page()
        await web.log_in(page, "/settings/people")
        await fill(page, "[name=code]", "AAAA2222")
        await press(page, ".inline [type=submit]")
        await page.wait("document.querySelector('#toasts .error')")
        await fill(page, "[name=code]", request.code.lower())
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
            await page.wait(
                "location.pathname.endsWith('telegram') && document.querySelector('ol a')"
            )
            link = "document.querySelector('main ol a').href"
            assert await page.run(link) == "https://t.me/BotFather"
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
            await fill(page, "[name=ALLOWED_USERS]", "")
            await press(page, "section [type=submit]")
            await page.wait(
                "document.querySelector('#toasts').textContent.includes('@hermes_test')"
            )
            assert "TELEGRAM_ALLOWED_USERS" not in (tmp_path / ".env").read_text()


async def test_stored_secret_is_not_sent_to_another_address(tmp_path: Path):
    async with web_client(tmp_path) as one:
        (tmp_path / ".env").write_text(
            "MATTERMOST_TOKEN=stored\nMATTERMOST_URL=http://127.0.0.1:9\n"
        )
        moved = {"MATTERMOST_URL": "http://127.0.0.1:10"}
        status, reply = await one.post("/settings/channels/mattermost", moved)
        assert (status, "missing" in reply) == (400, True), reply
        status, reply = await one.post(
            "/settings/channels/mattermost", {"MATTERMOST_URL": "http://127.0.0.1:9"}
        )
        assert "missing" not in reply, "the stored token is used at its own address"


async def test_masked_key_of_a_room_stays_as_it_is_stored(tmp_path: Path):
    stored = "IRC_SERVER=127.0.0.1\nIRC_NICKNAME=bot\nIRC_CHANNEL='#open,#closed room-key'\n"
    answers = {"IRC_NICKNAME": "bot", "IRC_CHANNEL": "#open,#closed [redacted]"}
    async with serve_irc(EmulatedIrc({})) as network:
        config = f"platforms: {{irc: {{extra: {{port: {network.port}, use_tls: false}}}}}}\n"
        async with web_client(tmp_path, config=config) as one:
            (tmp_path / ".env").write_text(stored)
            path = "/settings/channels/irc"
            status, reply = await one.post(path, {**answers, "IRC_SERVER": "127.0.0.1"})
            assert status == 200, reply
            assert "'#open,#closed room-key'" in (tmp_path / ".env").read_text()
            for moved in (
                {**answers, "IRC_SERVER": "localhost"},
                {**answers, "IRC_SERVER": "127.0.0.1", "IRC_CHANNEL": "#other [redacted]"},
            ):
                status, reply = await one.post(path, moved)
                assert (status, "masked" in reply) == (400, True), reply


async def test_cleared_answer_is_removed(tmp_path: Path):
    config = "platforms: {irc: {extra: {port: %d, use_tls: false}}}\n"
    async with serve_irc(EmulatedIrc({})) as irc, web_client(tmp_path) as one:
        (tmp_path / "config.yaml").write_text(config % irc.port)
        arguments = {"IRC_SERVER": "127.0.0.1", "IRC_NICKNAME": "hermes", "IRC_CHANNEL": "#tea"}
        assert (await one.post("/settings/channels/irc", arguments))[0] == 200
        assert "IRC_CHANNEL=#tea" in (tmp_path / ".env").read_text().replace("'", "")
        status, reply = await one.post("/settings/channels/irc", {**arguments, "IRC_CHANNEL": ""})
        assert status == 200, reply
        assert "IRC_CHANNEL" not in (tmp_path / ".env").read_text()


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


async def test_usage_is_charted_by_day_model_person_and_job(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        session, now = await session_of(web, "tea"), web.app.clock.now()
        for days, model in ((0, "small"), (3, "large"), (60, "old")):
            at = now - timedelta(days=days)
            usage = Usage(1000, 100, 500)
            await web.app.store.commit(RecordUsage(session, "r", model, "p", usage, 0.25, at))
        cron: CronOperation = web.app.features.get("cron")
        job = await cron.service.create(JobChange(name="brew", schedule="every 6h", prompt="tea"))
        fire = Fire(job=job.id, at=now, state=FireState.COMPLETED, session=session)
        await web.app.store.commit(SaveFire(fire))
        # Runs of another job do not hide it, however many.
        often = [
            Fire(job="other", at=now + timedelta(seconds=n), state=FireState.COMPLETED)
            for n in range(1, 2_002)
        ]
        await web.app.store.commit(*map(SaveFire, often))
        page = await window.page()
        await web.log_in(page, "/usage")
        shown = await page.text("main")
        assert "$0.50" in shown
        assert "p/old" not in shown
        drawn = "[...document.querySelectorAll('.chart rect:not(.cached)')]"
        titles = await page.run(f"{drawn}.map(e => e.textContent).filter(t => t.includes('1,100'))")
        assert len(titles) == 2
        assert "1.5k" in await page.text(".chart"), "the scale"
        ranked = "[...document.querySelectorAll('.ranking li')].map(e => e.textContent)"
        assert sorted(await page.run(ranked)) == [
            "brew2,200 · $0.50", "owner2,200 · $0.50", "p/large1,100 · $0.25",
            "p/small1,100 · $0.25", "web2,200 · $0.50",
        ]  # fmt: skip
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


async def test_proposals_and_pairing_requests_are_listed_as_waiting(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        page = await window.page()
        await web.log_in(page, "/approvals")
        assert await page.text("#pending") == ""
        assert "Nothing is waiting" in await page.text("main")
        proposal = await web.app.learning.memory_store.propose(remember("Tea.", Author.REVIEW))
        code = Pairing(web.app.home.pairing, web.app.clock).request("telegram", "7", "Noor")
        assert isinstance(code, PairingCode)
        # It appears without a reload, and on every page.
        await page.wait("document.querySelector('#pending').textContent === '2'")
        await page.wait(f"document.querySelector('#{proposal.id}') && "
                        "document.querySelector('main').textContent.includes('Noor')")  # fmt: skip
        assert "Nothing is waiting" not in await page.text("main")
        assert "+Tea." in await page.text(f"#{proposal.id} .diff")
        await press(page, f"#{proposal.id} .row [data-url$=accept]")
        await page.wait(f"!document.getElementById('{proposal.id}')")
        await page.wait("document.querySelector('#pending').textContent === '1'")
        await fill(page, "[name=code]", code.code)
        await press(page, "form[data-url$=approve] [type=submit]")
        await page.wait("document.querySelector('#pending').textContent === ''")
        await page.wait("document.querySelector('main').textContent.includes('Nothing is wait')")
        assert page.errors == []


async def test_broken_pairing_file_does_not_break_other_pages(tmp_path: Path):
    async with web_client(tmp_path) as one:
        one.web.app.home.pairing.mkdir(parents=True)
        (one.web.app.home.pairing / "telegram-pending.json").write_text("{")
        assert (await one.get("/approvals"))[0] == 200


async def test_session_that_was_searched_is_renamed_exported_and_deleted(
    browser: str, tmp_path: Path
):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        session = await session_of(web, "green tea")
        page = await window.page()
        await web.log_in(page)
        await page.goto(f"{web.url}/sessions?q=tea")
        assert await page.run("document.querySelectorAll('#list mark').length") == 1
        await press(page, "#list [data-action=rename]")
        await page.wait("document.activeElement?.matches('dialog input')")
        await page.type("Tea time")
        await page.press("Enter")
        await page.wait("document.querySelector('#list .title')?.textContent === 'Tea time'")
        export = "document.querySelector('#list a[download]').href"
        assert "green tea" in await page.run(f"fetch({export}).then(r => r.text())")
        family = "document.querySelector('#list a[href*=family]').search"
        assert await page.run(family) == f"?family={session}"
        await press(page, "#list [data-action=delete]")
        await confirm(page)
        await page.wait("document.querySelector('#list .empty')")
        assert page.errors == []


async def test_search_of_one_source_is_not_crowded_out_by_others(tmp_path: Path):
    async with web_client(tmp_path) as one:
        for number in range(MAX_HITS + 1):
            await session_of(one.web, f"apple {number}")
        terminal = one.web.app.new_conversation(SessionOptions(source="cli"))
        await terminal.begin_with([User("u1", (Text("an apple of the terminal"),))])
        _, page = await one.get("/sessions/list?q=apple&source=cli")
        assert "of the terminal" in page
        assert page.count("<li") == 1
