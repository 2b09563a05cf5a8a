"""Live turns are rendered only for sessions that a page shows, and nothing is missed by it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path

import anyio
import apsw
import msgspec
import pytest

from hermes.app.build import App, open_app
from hermes.app.options import AppOptions
from hermes.config.home import resolve_home
from hermes.cron.job_changes import JobChange
from hermes.cron.operation import CronOperation
from hermes.ports.store import AppendMessage
from hermes.schema.errors import SessionBusy, StoreError, UsageError
from hermes.schema.messages import Text, User
from hermes.schema.scope import OWNER
from hermes.schema.sessions import SessionChange
from hermes.session.conversation import SessionOptions
from hermes.testing.fake_openai.script import Reply, Script
from hermes.web.commands import WebCommands
from hermes.web.context import ProfileWeb, SessionState, TaskStarter
from hermes.web.shown_sessions import publish_changes, read_state
from hermes.web.transcripts import transcript_view
from support.api_server import api_env
from support.polling import TIMEOUT, pause
from support.web_page import WebHarness, web_harness


async def kinds_after(web: WebHarness, session: str, position: str) -> list[str]:
    feed = web.server.context.profiles["default"].feed
    async for batch in feed.follow(session, position):
        return [one.kind for one in batch]
    return []


async def test_unwatched_turn_is_not_rendered(tmp_path: Path):
    script = Script(replies=[Reply("Hello."), Reply("Hello again.")])
    async with web_harness(tmp_path, script) as web:
        feed = web.server.context.profiles["default"].feed
        terminal = web.app.new_conversation(SessionOptions(source="cli"))
        start = feed.position
        await terminal.submit([Text("hi")], web.ignore)
        session = terminal.session.id
        assert "entry" not in await kinds_after(web, "", start)
        assert await kinds_after(web, session, start) == ["reset"]

        feed.expect(session)
        start = feed.position
        await terminal.submit([Text("hi again")], web.ignore)
        assert (await kinds_after(web, session, start)).count("entry") >= 2


async def test_change_by_another_process_before_the_page_listens_is_noticed(tmp_path: Path):
    async with web_harness(tmp_path) as web:
        conversation = web.app.new_conversation(SessionOptions(source="cli"))
        await conversation.begin_with([User("u1", (Text("first"),))])
        profile, session = web.server.context.profiles["default"], conversation.session
        loaded = await transcript_view(profile, session)
        added = User("u2", (Text("second"),))
        await web.app.store.commit(AppendMessage(session.id, "", added, web.app.clock.now()))
        with anyio.fail_after(TIMEOUT):
            assert await kinds_after(web, session.id, loaded.position) == ["reload"]


async def test_end_of_a_turn_elsewhere_is_published_with_its_title(tmp_path: Path):
    async with web_harness(tmp_path) as web:
        conversation = web.app.new_conversation(SessionOptions(source="cli"))
        await conversation.begin_with([User("u1", (Text("water the plants"),))])
        session, leases = conversation.session.id, web.app.store.leases
        feed = web.server.context.profiles["default"].feed
        generation, events = 0, list[dict[str, object]]()
        with anyio.fail_after(TIMEOUT):
            generation = await leases.hold(session, "elsewhere", timedelta(minutes=1))
            # The page shows another session, or none.
            async for batch in feed.follow("", feed.position):
                events += [msgspec.json.decode(one.data) for one in batch if one.kind == "activity"]
                if len(events) == 1:
                    await leases.release(session, generation)
                elif events:
                    break
        assert events[0] == {"session": session, "running": True}
        seconds = events[1].pop("seconds")
        assert events[1] == {"session": session, "running": False, "name": "water the plants"}
        assert isinstance(seconds, float)


async def test_turn_of_this_process_ends_with_its_title(tmp_path: Path):
    async with web_harness(tmp_path) as web:
        feed = web.server.context.profiles["default"].feed
        start = feed.position
        terminal = web.app.new_conversation(SessionOptions(source="cli"))
        await terminal.submit([Text("water the plants")], web.ignore)
        async for batch in feed.follow("", start):
            events = [msgspec.json.decode(one.data) for one in batch if one.kind == "activity"]
            break
        assert [one.get("name") for one in events] == [None, "water the plants"]


@asynccontextmanager
async def after_own_turn(folder: Path) -> AsyncGenerator[tuple[ProfileWeb, str, App]]:
    """A profile right after a turn of its process, and the app of another process."""
    async with web_harness(folder) as web:
        profile = ProfileWeb("default", web.app, TaskStarter())
        env = api_env(folder, web.model.url)
        with profile.live.observing(web.app.runner):
            own = web.app.new_conversation(SessionOptions(source="web"))
            await own.begin_with([User("u1", (Text("first"),))])
            # No title is made meanwhile.
            await own.change(SessionChange(title="Tea"))
            session = own.session.id
            profile.note_loaded(session, await read_state(profile, session))
            await own.submit([Text("hi")], web.ignore)
            options = AppOptions(workspace=str(folder / "workspace"), source="cli")
            async with open_app(resolve_home(env), env, options) as other:
                yield profile, session, other


async def look(profile: ProfileWeb, session: str, before: SessionState | None) -> SessionState:
    before = before or profile.take_loaded(session)
    assert before is not None
    now = await read_state(profile, session)
    await publish_changes(profile, session, before, now)
    return now


async def kinds_of(profile: ProfileWeb, session: str, position: str) -> list[str]:
    with anyio.move_on_after(TIMEOUT):
        async for batch in profile.feed.follow(session, position):
            return [one.kind for one in batch]
    return []


async def test_turn_of_this_process_is_not_shown_again(tmp_path: Path):
    async with after_own_turn(tmp_path) as (profile, session, _):
        position = profile.feed.position
        first = await look(profile, session, None)
        await look(profile, session, first)
        assert profile.feed.position == position


async def test_foreign_turn_right_after_one_of_the_page_is_shown(tmp_path: Path):
    async with after_own_turn(tmp_path) as (profile, session, other):
        position = profile.feed.position
        async with other.runner.holding(session):
            first = await look(profile, session, None)
            assert await kinds_of(profile, session, position) == ["run"]
        position = profile.feed.position
        await look(profile, session, first)
        assert await kinds_of(profile, session, position) == ["run"]


async def test_short_foreign_turn_right_after_one_of_the_page_is_shown(tmp_path: Path):
    async with after_own_turn(tmp_path) as (profile, session, other):
        position = profile.feed.position
        added = User("u9", (Text("typed in the terminal"),))
        await other.store.commit(AppendMessage(session, "", added, other.clock.now()))
        await look(profile, session, None)
        assert await kinds_of(profile, session, position) == ["reload"]


async def test_message_and_stop_during_a_turn_from_elsewhere_name_its_source(tmp_path: Path):
    script = Script(replies=[Reply("Slow.", gate="slow")])
    async with web_harness(tmp_path, script) as web:
        profile = web.server.context.profiles["default"]
        terminal = web.app.new_conversation(SessionOptions(source="telegram"))
        async with web.in_background(terminal.submit([Text("hi")], web.ignore)):
            with anyio.fail_after(TIMEOUT):
                while profile.live.get(terminal.session.id) is None:
                    await pause()
            session = terminal.session.id
            with pytest.raises(SessionBusy) as busy:
                await profile.conversations.send(session, [Text("me too")])
            with pytest.raises(UsageError, match="where it was started"):
                await WebCommands(web.app, profile.conversations).run(session, "/stop")
            terminal.interrupt()
        assert "telegram" in busy.value.hint
        stopped = await WebCommands(web.app, profile.conversations).run(session, "/stop")
        assert stopped is not None
        assert "Nothing is running" in stopped.text


async def test_session_of_the_page_gets_a_title_without_a_model_for_it(tmp_path: Path):
    async with web_harness(tmp_path) as web:
        profile = web.server.context.profiles["default"]
        session = await profile.conversations.send("", [Text("please water the plants")])
        archive = web.app.store.archive_for(OWNER)
        with anyio.fail_after(TIMEOUT):
            while not (title := (await archive.get(session)).title):
                await pause()
        assert title == "Water the plants"


async def test_choice_before_the_first_message_survives_a_failure_to_store_it(tmp_path: Path):
    config = "fallback_providers: [other-model]\n"
    script = Script(models=("mock-model", "other-model"))
    async with web_harness(tmp_path, script, config=config) as web:
        profile = web.server.context.profiles["default"]
        commands = WebCommands(web.app, profile.conversations)
        chosen = await commands.run("", "/model other-model")
        assert chosen is not None
        # Of the same library: another one would drop the store's locks of the file.
        with closing(apsw.Connection(str(web.app.home.database))) as database:
            database.execute(
                "CREATE TRIGGER full BEFORE INSERT ON messages "
                "BEGIN SELECT raise(ABORT, 'no space'); END"
            )
            with pytest.raises(StoreError):
                await profile.conversations.send("", [Text("hi")], unsaved=chosen.unsaved)
            database.execute("DROP TRIGGER full")
        await profile.conversations.send("", [Text("hi")], unsaved=chosen.unsaved)
        with anyio.fail_after(TIMEOUT):
            while not web.model.requests:
                await pause()
        assert b'"model":"other-model"' in web.model.requests[0].body


async def test_job_that_is_made_before_the_first_look_is_noticed(tmp_path: Path):
    async with web_harness(tmp_path) as web:
        feed = web.server.context.profiles["default"].feed
        position = feed.position
        with anyio.fail_after(TIMEOUT):
            async with anyio.create_task_group() as group:
                group.start_soon(kinds_after, web, "", position)
                await pause()
                cron: CronOperation = web.app.features.get("cron")
                await cron.service.create(JobChange(name="tea", schedule="2h", prompt="Make tea."))
        assert feed.position != position


async def test_jobs_that_cannot_be_read_do_not_end_live_updates(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with web_harness(tmp_path) as web:
        cron: CronOperation = web.app.features.get("cron")
        job = await cron.service.create(JobChange(name="tea", schedule="2h", prompt="Make tea."))
        folder, aside = web.app.home.root / "cron", web.app.home.root / "aside"
        folder.rename(aside)
        folder.write_text("not a folder")
        feed = web.server.context.profiles["default"].feed
        kinds = list[str]()

        async def follow() -> None:
            kinds.extend(await kinds_after(web, "", feed.position))

        with anyio.fail_after(TIMEOUT):
            async with anyio.create_task_group() as group:
                group.start_soon(follow)
                while "cannot look at the jobs" not in caplog.text:
                    await pause()
                folder.unlink()
                aside.rename(folder)
                changes = 0
                while not kinds:
                    changes += 1
                    await cron.service.update(job.id, JobChange(prompt=f"Make tea {changes}."))
                    await pause()
        assert kinds == ["changed"]
