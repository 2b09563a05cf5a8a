"""Command services of a real profile."""

import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from msgspec import structs

from hermes.app.build import App, AppOptions, open_app
from hermes.app.chat_settings import ChatSettings
from hermes.app.command_services import GatewayPlatforms, command_services
from hermes.app.gateway import gateway_rules
from hermes.app.prompt_context import BUILTIN_PERSONALITIES, all_personalities, personality_text
from hermes.app.session_jobs import SessionJobs
from hermes.commands.command import CommandContext
from hermes.commands.registry import standard_commands
from hermes.commands.services import HandoffCaller
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.loader import load_config
from hermes.config.schema import Config
from hermes.gateway.messages import read_outbox_message
from hermes.gateway.people import LinkedAccount, People, Proof
from hermes.gateway.session_keys import SessionKeys
from hermes.gateway.supervisor import Supervisor
from hermes.gateway.targets import home_channels
from hermes.ports.delegation import Task
from hermes.ports.store import AppendMessage, OpenSession
from hermes.schema.errors import LeaseLost, SessionBusy, UsageError
from hermes.schema.messages import Text, Trust, User
from hermes.schema.scope import OWNER, Address, Role, Scope
from hermes.schema.sessions import Session
from hermes.schema.terminal import BusyMode, TextReply
from hermes.session.keys import ChatId
from hermes.store.sqlite import SqliteStore
from hermes.testing.channel import FakeChannel
from hermes.testing.clock import FakeClock
from support.gateway import chat_sessions
from support.lost_lease import LeaseLosingRunner
from support.polling import pause

CONFIG = """
model:
  default: big
  provider: here
providers:
  here:
    base_url: http://127.0.0.1:1/v1
    models: [big, small]
fallback_providers:
  - {provider: here, model: spare}
agent:
  personalities:
    Pirate: Speak like a pirate.
    captain: {system_prompt: You are a captain., tone: rough}
    concise: Be very brief.
platforms:
  fake: {enabled: true}
"""


@asynccontextmanager
async def opened(
    path: Path, config: str = CONFIG, env: Mapping[str, str] | None = None
) -> AsyncGenerator[App]:
    home = Home(root=path, path=path)
    home.config.write_text(config)
    variables = Env({"HOME": str(path), "PATH": "/usr/bin:/bin", **(env or {})})
    async with open_app(home, variables, AppOptions(workspace=str(path))) as app:
        yield app


def reread(app: App) -> Config:
    return load_config(app.home, app.env).config


async def test_settings_are_written(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        settings = command_services(app).settings
        assert settings is not None
        await settings.save_effort("high")
        await settings.save_busy_mode(BusyMode.COLLECT)
        await settings.save_progress("new")
        assert (settings.effort(), settings.progress()) == ("high", "new")
        config = reread(app)
        assert config.agent.reasoning_effort == "high"
        assert config.display.busy_input_mode == "collect"
        assert config.display.tool_progress == "new"


async def test_tool_progress_of_a_platform_is_saved_and_applies_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        settings = command_services(app).settings
        assert settings is not None
        rules = gateway_rules(app.config, app.chats, app.env, ["telegram"])
        chat, other = Address("telegram", "1"), Address("discord", "1")
        assert rules.display_on(chat).tools
        await settings.save_progress("off", "telegram")
        assert (settings.progress("telegram"), settings.progress("discord")) == ("off", "all")
        assert (rules.display_on(chat).tools, rules.display_on(other).tools) == (False, True)
        assert not ChatSettings(reread(app)).shows_tools("telegram")


async def test_delegated_tasks_are_listed_and_ended(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = CONFIG.replace("127.0.0.1:1", f"127.0.0.1:{silent.getsockname()[1]}")
        await _list_and_end_delegated_tasks(tmp_path, config)


async def _list_and_end_delegated_tasks(tmp_path: Path, config: str) -> None:
    async with opened(tmp_path, config) as app:
        session = Session(id="s-1", started_at=app.clock.now(), source="fake", key="chat")
        scope = Scope("default", session.id, "r", str(tmp_path), source="fake", key="chat")
        background = command_services(app).background
        assert background is not None
        name = await app.delegations.dispatch(scope, [Task(goal="count"), Task(goal="sort")])
        with anyio.fail_after(60):
            found = await background.list_tasks(structs.replace(session, id="s-2"))
            while not all(one.activity for one in found):
                await pause()
                found = await background.list_tasks(structs.replace(session, id="s-2"))
        assert [one.name for one in found] == [f"{name} [1]", f"{name} [2]"]
        assert [one.command for one in found] == ["count", "sort"]
        assert SessionJobs(app).running(session) == 2
        assert await background.end_all(session) == 1
        with anyio.fail_after(60):
            while SessionJobs(app).running(session):
                await pause()
        ended = await background.list_tasks(session)
        assert [one.command for one in ended] == ["count", "sort"]
        assert {(one.state, one.activity) for one in ended} == {("interrupted", "")}


async def test_home_channel_is_saved_and_used_immediately(tmp_path: Path) -> None:
    address = Address("fake", '-100: "x"', "t")
    async with opened(tmp_path) as app:
        settings = command_services(app).settings
        assert settings is not None
        await settings.save_home_channel(address, "Kitchen")
        assert home_channels(app.env, app.config.platforms) == {"fake": address}
        assert home_channels(app.env, reread(app).platforms) == {"fake": address}
        assert reread(app).platforms["fake"].enabled


async def test_home_channel_set_by_a_variable_cannot_be_changed(tmp_path: Path) -> None:
    async with opened(tmp_path, env={"FAKE_HOME_CHANNEL": "7"}) as app:
        settings = command_services(app).settings
        assert settings is not None
        with pytest.raises(UsageError, match="FAKE_HOME_CHANNEL"):
            await settings.save_home_channel(Address("fake", "1"), "")


async def test_effort_and_personality_reach_the_plan(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        scope = Scope(profile="default", session="s", run="r", workspace="/w", source="cli")
        context = CommandContext(app.conversation, app.models, app, services=command_services(app))
        registry = standard_commands()

        async def planned(*lines: str) -> tuple[str | None, str]:
            for line in lines:
                assert isinstance(await registry.run(context, line), TextReply)
            plan = await app.planner.plan(app.conversation.session, scope, ())
            return plan.effort, plan.system

        effort, plain = await planned()
        assert effort is None
        effort, system = await planned("/reasoning low --global", "/personality pirate")
        assert effort == "low"
        assert "Speak like a pirate." in system
        assert (await planned("/reasoning high"))[0] == "high"
        app.conversation.start_new()
        assert await planned() == ("low", plain)


async def test_session_from_a_platform_has_the_tools_of_the_platform(tmp_path: Path) -> None:
    config = CONFIG + "platform_toolsets:\n  fake: [todo]\n"
    async with opened(tmp_path, config) as app:
        here = Scope(profile="default", session="s", run="r", workspace="/w", source="cli")
        there = structs.replace(here, address=Address("fake@ann", "1"))
        session = app.conversation.session
        assert "terminal" in (await app.planner.plan(session, here, ())).tools
        assert list((await app.planner.plan(session, there, ())).tools) == ["todo"]
        guest = structs.replace(there, role=Role.GUEST)
        assert list((await app.planner.plan(session, guest, ())).tools) == []


async def test_models_and_tools_are_listed(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        services = command_services(app)
        assert services.model_offers is not None
        assert await services.model_offers.offers() == [
            "big --provider here",
            "spare --provider here",
            "small --provider here",
        ]
        assert services.toolsets is not None
        session = app.conversation.session
        names = [spec.name for spec in services.toolsets.offered("cli", Role.OWNER, session)]
        assert "terminal" in names
        assert services.toolsets.offered("cli", Role.GUEST, session) == []
        assert services.toolsets.toolsets()["todo"] == ["todo"]


async def test_report_contains_no_secrets(tmp_path: Path) -> None:
    async with opened(tmp_path, env={"OPENAI_API_KEY": "sk-secret-secret"}) as app:
        house = command_services(app).program
        assert house is not None
        report = dict(await house.report())
        assert report["profile"] == "default"
        assert report["platforms"] == "fake"
        assert int(report["database"].removesuffix(" bytes").replace(",", "")) > 0
        assert "secret" not in str(report)
        assert str(tmp_path) not in str(report)


async def test_image_is_loaded(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        pictures = command_services(app).images
        assert pictures is not None
        (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"0" * 40)
        picture = await pictures.load(str(tmp_path / "a.png"))
        assert (picture.media_type, picture.name) == ("image/png", "a.png")
        with pytest.raises(UsageError):
            await pictures.load(str(tmp_path / "b.png"))


async def test_platform_states_come_from_the_supervisor(store: SqliteStore) -> None:
    channel = FakeChannel()
    supervisor = Supervisor({"fake": channel}, FakeClock(), workers=store.workers)
    platforms = GatewayPlatforms(supervisor)
    assert [(one.name, one.state) for one in platforms.states()] == [("fake", "waiting")]
    platforms.pause("fake")
    assert [one.state for one in platforms.states()] == ["paused"]
    platforms.resume("fake")
    assert [one.state for one in platforms.states()] == ["waiting"]
    await anyio.lowlevel.checkpoint()


def test_personalities_are_listed(tmp_path: Path) -> None:
    home = Home(root=tmp_path, path=tmp_path)
    home.config.write_text(CONFIG + "display:\n  personality: captain\n")
    config = load_config(home, {}).config
    known = all_personalities(config)
    assert set(known) == {*BUILTIN_PERSONALITIES, "pirate", "captain"}
    assert all(known.values())
    assert known["concise"] == "Be very brief."
    assert personality_text(config, "") == "You are a captain.\nTone: rough"
    assert personality_text(config, "pirate") == "Speak like a pirate."
    assert personality_text(config, "none") == personality_text(config, "gone") == ""


async def test_changed_settings_are_shown_without_secrets(tmp_path: Path) -> None:
    config = CONFIG.replace("base_url:", "api_key: sk-very-secret-12345\n    base_url:")
    async with opened(tmp_path, config) as app:
        settings = command_services(app).settings
        assert settings is not None
        shown = await settings.describe_changed()
        assert "default: big" in shown
        assert "max_turns" not in shown
        assert "very-secret" not in shown


async def test_toolsets_are_switched_in_the_settings(tmp_path: Path) -> None:
    async with opened(tmp_path) as app:
        toolbox = command_services(app).toolsets
        assert toolbox is not None
        assert "terminal" in await toolbox.describe()
        reply = await toolbox.switch(["terminal"], "", on=False)
        assert reply == "terminal: disabled on all platforms from the next start."
        assert reread(app).agent.disabled_toolsets == ("terminal",)
        assert "already" in await toolbox.switch(["terminal"], "", on=False)
        await toolbox.switch(["terminal"], "", on=True)
        assert not reread(app).agent.disabled_toolsets
        for names, platform in ((["magic"], ""), (["terminal"], "moon")):
            with pytest.raises(UsageError):
                await toolbox.switch(names, platform, on=True)


async def test_prompt_of_a_person_is_always_started(tmp_path: Path) -> None:
    """Also after many reports to which nobody said anything; and it comes back as one message."""
    async with opened(tmp_path) as app:
        session = app.conversation.session
        began = app.clock.now()
        messages = [User(f"m{n}", (Text("report"),), Trust.DATA) for n in range(9)]
        rows = [AppendMessage(session.id, "", one, began) for one in messages]
        await app.store.commit(OpenSession(session), *rows)
        await app.conversation.resume(session.id)
        context = CommandContext(app.conversation, app.models, app, services=command_services(app))
        reply = await standard_commands().run(context, "/background look around")
        assert isinstance(reply, TextReply)
        name = reply.text.split()[1].rstrip(".:,")
        with anyio.fail_after(60):
            while not await app.followups.has_followups(session.id):
                await pause()
        (letter,) = await app.store.queues.claim("inbox", session.id, "me", timedelta(0), 10)
        assert letter.key == name
        assert b"look around" in bytes(letter.body)


class _Chat:
    """A session that the owner has in the home chat of a platform."""

    address = Address("fake", "42")
    place = ChatId(space="main", platform="fake", kind="dm", chat="42")

    async def begin(self, app: App) -> Session:
        key = await SessionKeys(app.store, app.clock).assign(
            self.place.key, self.place, self.address
        )
        sessions = chat_sessions(app.store, app.clock, "/")
        return await sessions.begin(key, "fake", OWNER)


HOMELY = CONFIG.replace(
    "fake: {enabled: true}",
    "fake: {enabled: true, home_channel: {platform: fake, chat_id: '42'}}\n  bare: {enabled: true}",
)


async def test_session_is_handed_off_to_a_chat(tmp_path: Path) -> None:
    async with opened(tmp_path, HOMELY) as app:
        handing, chat = command_services(app).handoff, _Chat()
        assert handing is not None
        old = await chat.begin(app)
        session = structs.replace(app.conversation.session, title="Garden", system="You are.")
        await app.store.commit(OpenSession(session))
        assert await handing.hand_off(session, "fake") == "fake, chat 42"
        archive = app.store.archive_for(OWNER)
        moved = await archive.by_key(chat.place.key)
        assert moved is not None
        assert (moved.id, moved.system) == (session.id, "")
        assert (await archive.get(old.id)).end_reason == "another was handed over"
        (post,) = await app.store.queues.claim("outbox:fake", None, "me", timedelta(0), 10)
        assert read_outbox_message(post.body).address == chat.address
        assert "“Garden”" in read_outbox_message(post.body).text
        scope = Scope("default", session.id, "run", "/", source="cli")
        later = await app.followups.current_scope(scope)
        assert (later.address, later.key) == (chat.address, chat.place.key)


async def test_member_hands_off_to_a_linked_account_with_the_same_rights(tmp_path: Path) -> None:
    caller = HandoffCaller(account="other:1", role=Role.MEMBER, platform="other")
    async with opened(tmp_path, HOMELY) as app:
        handing, chat = command_services(app).handoff, _Chat()
        assert handing is not None
        await chat.begin(app)
        session = structs.replace(app.conversation.session, principal="other:1")
        await app.store.commit(OpenSession(session))
        with pytest.raises(UsageError, match="no linked account on fake"):
            await handing.hand_off(session, "fake", caller)
        accounts = [LinkedAccount(account=one, proof="code") for one in ("other:1", "fake:42")]
        People(app.home.people, app.clock).link(accounts)
        await handing.hand_off(session, "fake", caller)
        location = await app.store.chats.location(session.id)
        assert location is not None
        assert (location.principal, location.role) == ("other:1", Role.MEMBER)
        assert (location.address, location.asker.user) == (chat.address, "42")


def _with_admin(name: str) -> str:
    """The account 9 on the platform bare is the owner's, by the setting `name`."""
    extra = f"{{enabled: true, extra: {{{name}: ['9']}}}}"
    return HOMELY.replace("bare: {enabled: true}", f"bare: {extra}")


async def test_owner_hands_off_only_to_accounts_that_the_owner_linked(tmp_path: Path) -> None:
    """An account that is linked by a code has not the owner's role, and gets no owner's session."""
    caller = HandoffCaller(account="other:1", role=Role.OWNER, platform="other")
    theirs = Address("bare", "9")
    async with opened(tmp_path, _with_admin("allow_admin_from")) as app:
        handing, people = command_services(app).handoff, People(app.home.people, app.clock)
        assert handing is not None
        place = ChatId(space="main", platform="bare", kind="dm", chat="9")
        await SessionKeys(app.store, app.clock).assign(place.key, place, theirs)
        session = app.conversation.session
        await app.store.commit(OpenSession(session))
        by_code: list[tuple[Proof, Proof]] = [("code", "code"), ("owner", "code")]
        for proofs in by_code:
            _link_accounts(people, proofs)
            with pytest.raises(UsageError, match="bare has no home channel"):
                await handing.hand_off(session, "bare", caller)
        assert await app.store.chats.location(session.id) is None
        _link_accounts(people, ("owner", "owner"))
        await handing.hand_off(session, "bare", caller)
        location = await app.store.chats.location(session.id)
        assert location is not None
        assert (location.principal, location.address) == (OWNER, theirs)


async def test_owner_of_groups_only_gets_no_session_of_the_owner_in_a_direct_chat(
    tmp_path: Path,
) -> None:
    caller = HandoffCaller(account="other:1", role=Role.OWNER, platform="other")
    async with opened(tmp_path, _with_admin("group_allow_admin_from")) as app:
        handing = command_services(app).handoff
        assert handing is not None
        place = ChatId(space="main", platform="bare", kind="dm", chat="9")
        await SessionKeys(app.store, app.clock).assign(place.key, place, Address("bare", "9"))
        session = app.conversation.session
        await app.store.commit(OpenSession(session))
        _link_accounts(People(app.home.people, app.clock), ("owner", "owner"))
        with pytest.raises(UsageError, match="in groups only"):
            await handing.hand_off(session, "bare", caller)
        assert await app.store.chats.location(session.id) is None


def _link_accounts(people: People, proofs: tuple[Proof, Proof]) -> None:
    accounts = zip(("other:1", "bare:9"), proofs, strict=True)
    people.link([LinkedAccount(account=one, proof=proof) for one, proof in accounts])


GROUPS_ONLY = CONFIG.replace(
    "fake: {enabled: true}", "fake: {enabled: true, extra: {group_allow_admin_from: ['7']}}"
)


async def _talk_in_group(app: App, user: str, principal: str = OWNER) -> str:
    """A person has a session of their own in a group; return its key."""
    address = Address("fake", "room")
    place = ChatId(space="main", platform="fake", kind="group", chat="room", user=user)
    key = await SessionKeys(app.store, app.clock).assign(place.key, place, address)
    await chat_sessions(app.store, app.clock, "/").begin(key, "fake", principal)
    return key


async def test_owner_active_only_in_groups_hands_off_to_the_last_group(tmp_path: Path) -> None:
    async with opened(tmp_path, GROUPS_ONLY) as app:
        handing, session = command_services(app).handoff, app.conversation.session
        assert handing is not None
        session = structs.replace(session, title="Divorce papers")
        await app.store.commit(OpenSession(session))
        await _talk_in_group(app, "8", "fake:8")
        with pytest.raises(UsageError, match="no home channel"):
            await handing.hand_off(session, "fake")
        group = await _talk_in_group(app, "7")
        assert await handing.hand_off(session, "fake") == "fake, chat room"
        moved = await app.store.chats.location(session.id)
        assert moved is not None
        assert (moved.key, moved.address.chat, moved.asker.user) == (group, "room", "7")
        (post,) = await app.store.queues.claim("outbox:fake", None, "me", timedelta(0), 10)
        assert "Divorce" not in read_outbox_message(post.body).text, "others read the group"


async def test_session_is_not_handed_to_another_person_in_the_home_channel(tmp_path: Path) -> None:
    async with opened(tmp_path, HOMELY.replace("'42'", "room")) as app:
        handing, session = command_services(app).handoff, app.conversation.session
        assert handing is not None
        await app.store.commit(OpenSession(session))
        key = await _talk_in_group(app, "9", "fake:9")
        with pytest.raises(UsageError, match="not talked to me"):
            await handing.hand_off(session, "fake")
        sessions = chat_sessions(app.store, app.clock, "/")
        assert (await sessions.open_for_turn(key, "fake", "fake:9")).session.id != session.id


async def test_session_is_not_handed_to_a_thread_that_others_share(tmp_path: Path) -> None:
    async with opened(tmp_path, GROUPS_ONLY) as app:
        handing, session = command_services(app).handoff, app.conversation.session
        assert handing is not None
        await app.store.commit(OpenSession(session))
        place = ChatId(space="main", platform="fake", kind="thread", chat="room", thread="t1")
        address = Address("fake", "room", "t1")
        key = await SessionKeys(app.store, app.clock).assign(place.key, place, address)
        await chat_sessions(app.store, app.clock, "/").begin(key, "fake", OWNER)
        with pytest.raises(UsageError, match="no home channel"):
            await handing.hand_off(session, "fake")


async def test_handoff_from_a_chat_goes_to_a_group_of_the_linked_account(tmp_path: Path) -> None:
    caller = HandoffCaller(account="other:1", role=Role.OWNER, platform="other")
    async with opened(tmp_path, GROUPS_ONLY) as app:
        handing, session = command_services(app).handoff, app.conversation.session
        assert handing is not None
        await app.store.commit(OpenSession(session))
        accounts = [LinkedAccount(account=one, proof="owner") for one in ("other:1", "fake:9")]
        People(app.home.people, app.clock).link(accounts)
        await _talk_in_group(app, "7")
        with pytest.raises(UsageError, match="not talked to me"):
            await handing.hand_off(session, "fake", caller)
        group = await _talk_in_group(app, "9")
        await handing.hand_off(session, "fake", caller)
        moved = await app.store.chats.location(session.id)
        assert moved is not None
        assert (moved.key, moved.asker.user) == (group, "9")


@pytest.mark.parametrize(
    "settings", [CONFIG, GROUPS_ONLY.replace("['7']", "['7', '8']")], ids=["former", "second"]
)
async def test_session_goes_to_no_group_of_another_owner(tmp_path: Path, settings: str) -> None:
    async with opened(tmp_path, settings) as app:
        handing, session = command_services(app).handoff, app.conversation.session
        assert handing is not None
        await app.store.commit(OpenSession(session))
        await _talk_in_group(app, "7")
        with pytest.raises(UsageError, match="no home channel"):
            await handing.hand_off(session, "fake")


@pytest.mark.parametrize("lost", ["old", "new"])
async def test_handoff_with_a_lost_lease_changes_nothing(tmp_path: Path, lost: str) -> None:
    async with opened(tmp_path, HOMELY) as app:
        old, session = await _Chat().begin(app), app.conversation.session
        await app.store.commit(OpenSession(session))
        app.runner = LeaseLosingRunner(app, old.id if lost == "old" else session.id)  # type: ignore[assignment]
        handing = command_services(app).handoff
        assert handing is not None
        with pytest.raises(LeaseLost):
            await handing.hand_off(session, "fake")
        archive = app.store.archive_for(OWNER)
        assert (await archive.get(session.id)).key == session.key
        assert ((await archive.get(old.id)).ended_at is None) is (lost == "old")
        assert await app.store.queues.claim("outbox:fake", None, "me", timedelta(0), 10) == []


async def test_handoff_without_a_target_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path, HOMELY) as app:
        handing = command_services(app).handoff
        assert handing is not None
        session = app.conversation.session
        await app.store.commit(OpenSession(session))
        for platform, why in (
            ("moon", "Unknown platform"),
            ("telegram", r"telegram is not set up\."),
            ("bare", "home"),
            ("fake", "not talked to me"),
        ):
            with pytest.raises(UsageError, match=why):
                await handing.hand_off(session, platform)
        old = await _Chat().begin(app)
        async with app.runner.holding(old.id):
            with pytest.raises(SessionBusy):
                await handing.hand_off(session, "fake")
        found = await app.store.archive_for(OWNER).by_key(old.key)
        assert found is not None
        assert found.id == old.id
