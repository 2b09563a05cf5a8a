"""Run the real gateway with several profiles and look for leaks between them.

Each profile has its own prompt, key and logging hook. The people of all profiles share the same ids
and chats, and talk to the agent in direct messages and in a group. Each isolation mechanism can be
disabled, to test that the resulting leak is found.
"""

import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
from msgspec import Struct, structs

from hermes.config.home import DEFAULT_PROFILE
from hermes.ports.channel import (
    Channel,
    ChannelCapabilities,
    ChannelDeps,
    Inbound,
    Outbound,
    Receipt,
)
from hermes.schema.scope import Address
from support.canaries import Canaries
from support.chat_platform.gateway import TEST_MANIFEST, open_test_channel
from support.chat_platform.model import ModelCall
from support.chat_platform.server import PlatformServer, serve_platform
from support.chat_platform.state import GROUP_PREFIX, PlatformPost, WrittenMessage
from support.delivery_check import question_name
from support.gateway_instances import AnswerWaiter, StartInstance, gateway_instance
from support.gateway_process import GatewayReport, GatewaySpec
from support.homes import ProfileSettings, profile_path, write_profile

GROUP_CHAT = f"{GROUP_PREFIX}den"
DATABASE = "hermes.db"
UNSCANNED = (".env", "profiles")
"""Skipped when a home is scanned: its own keys, and the homes of other profiles."""

HOOK_MANIFEST = "name: chatty\nevents: [agent:start, agent:end]\n"
HOOK_HANDLER = """import logging

from hermes.session.session_context import session_env


def handle(event, context):
    log = logging.getLogger("hermes.plugins.chatty")
    log.info("{} saw %s of %s, and around it %s", event, context, session_env())
"""

QUESTIONS = (
    "{name} mine {words}",
    "{name} mine {words}",
    '{name} mine {words} use:terminal {{"command": "env >> env-$HERMES_SESSION_USER_ID"}}',
    '{name} mine {words} use:terminal {{"command": "env"}}',
    '{name} mine {words} use:terminal {{"command": "cat {home}/.env; base64 {home}/.env"}}',
    "/sessions",
)
GROUP_QUESTIONS = QUESTIONS[:4]


class IsolationOptions(Struct, frozen=True, kw_only=True):
    """Which isolation mechanisms are enabled.

    With `spaces`, one process serves all profiles and their names are part of the session keys;
    otherwise each profile has its own process.
    """

    keys: bool = True
    prompts: bool = True
    databases: bool = True
    spaces: bool = True
    principals: bool = True
    logs: bool = True
    factory: str = TEST_MANIFEST.factory
    settings: Mapping[str, object] = {}


class IsolatedProfile:
    """One profile: its home, its secrets and those of its people."""

    def __init__(
        self, profile: str, folder: Path, people: Sequence[str], canaries: Canaries
    ) -> None:
        self.profile = profile
        self.home = profile_path(folder / "home", profile)
        self.work = folder / "work" / profile
        self.prompt = canaries.plant(profile, "prompt")
        self.key = canaries.plant(profile, "key", hidden=True)
        self.names = {one: canaries.plant(f"{profile}/{one}", "name") for one in people}
        self.words = {one: canaries.plant(f"{profile}/{one}/dm", "words") for one in people}
        self.in_group = {one: canaries.plant(f"{profile}/{one}/group", "words") for one in people}

    def set_up(self, url: str, options: IsolationOptions, first: "IsolatedProfile") -> None:
        settings = options.settings
        if options.spaces and self is first:
            gateway = {**_mapping(settings.get("gateway")), "multiplex_profiles": True}
            settings = {**settings, "gateway": gateway}
        gateway_settings = ProfileSettings(
            account=self.profile,
            url=url,
            key=self.key if options.keys else first.key,
            people=list(self.names),
            owners=() if options.principals else list(self.names),
            env={"MESSAGING_CWD": str(self.work)},
            settings=settings,
        )
        self.work.mkdir(parents=True)
        write_profile(self.home, gateway_settings)
        prompt = self.prompt if options.prompts else first.prompt
        (self.home / "SOUL.md").write_text(f"You serve {prompt}.\n")
        hook = self.home / "hooks" / "chatty"
        hook.mkdir(parents=True)
        (hook / "HOOK.yaml").write_text(HOOK_MANIFEST)
        (hook / "handler.py").write_text(HOOK_HANDLER.replace("{}", self.prompt))
        if not options.databases and self is not first:
            (self.home / DATABASE).symlink_to(first.home / DATABASE)

    def asks(self, person: str, chat: str, form: str, name: str) -> str:
        words = (self.words if chat == person else self.in_group)[person]
        return form.format(name=name, words=words, home=self.home)


def _mapping(value: object) -> dict[str, object]:
    return dict(value) if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - settings as written by a user


class MultiProfileGateway:
    """A running gateway; `run_steps` lets its people write, `reports` are filled at the end."""

    def __init__(
        self, server: PlatformServer, profiles: Sequence[IsolatedProfile], seed: int
    ) -> None:
        self.server = server
        self.profiles = profiles
        self.reports: list[GatewayReport] = []
        self.steps = 0
        self._answers = AnswerWaiter(server)
        self._chance = random.Random(seed)  # noqa: S311 - must be repeatable, not secret
        for profile in profiles:
            for person, name in profile.names.items():
                server.platform.names[profile.profile, person] = name

    async def run_steps(self, steps: int, at_once: int = 40) -> None:
        while steps > 0:
            messages = [self._step() for _ in range(min(steps, at_once))]
            steps -= len(messages)
            self.server.platform.say_all(messages)
            self.server.changed()
            await self._answers.wait_for_all()

    def _step(self) -> tuple[str, str, str, str]:
        self.steps += 1
        chance = self._chance
        tenant = chance.choice(self.profiles)
        person = chance.choice(sorted(tenant.names))
        # People and chats have the same ids in all profiles.
        grouped = chance.random() < 0.3
        chat, forms = (GROUP_CHAT, GROUP_QUESTIONS) if grouped else (person, QUESTIONS)
        text = tenant.asks(person, chat, chance.choice(forms), f"q-{self.steps}")
        return tenant.profile, chat, person, text


class LeakScanner:
    """Scans everything that a gateway sends, and the files it leaves behind."""

    def __init__(self, canaries: Canaries, server: PlatformServer) -> None:
        self._canaries = canaries
        self._platform = server.platform
        self._asked: dict[str, WrittenMessage] = {}
        server.model.on_call = self.thought

    def thought(self, thought: ModelCall) -> None:
        """Scan a model request on behalf of the person who asked."""
        asker = self._by_name().get(question_name(thought.question))
        reader = _reader(thought.account, asker) if asker else thought.account
        self._canaries.scan(reader, "request", thought.body)
        self._canaries.scan(thought.account, "authorization", thought.key, entrusted=True)

    def chats(self) -> None:
        by_id = {one.id: one for one in self._platform.written}
        for shown in self._platform.posts.values():
            for form in shown.forms:
                self._canaries.scan(self._reader_of(shown, by_id), "chat", form)

    def left_behind(self, tenant: IsolatedProfile) -> None:
        canaries = self._canaries
        canaries.scan_files(tenant.profile, tenant.home, exclude=UNSCANNED)
        for person in tenant.names:
            file = tenant.work / f"env-{person}"
            if file.exists():
                canaries.scan(
                    f"{tenant.profile}/{person}", "child's environment", file.read_bytes()
                )
        if (tenant.home / DATABASE).exists():
            canaries.scan_database(tenant.profile, tenant.home / DATABASE)

    def _reader_of(self, shown: PlatformPost, by_id: Mapping[str, WrittenMessage]) -> str:
        if not shown.chat.startswith(GROUP_PREFIX):
            return f"{shown.account}/{shown.chat}"
        answered = by_id.get(shown.reply_to or "")
        # The later parts of a long answer have no `reply_to`.
        return _reader(shown.account, answered) if answered else shown.account

    def _by_name(self) -> Mapping[str, WrittenMessage]:
        for spoken in self._platform.written[len(self._asked) :]:
            name = spoken.id if spoken.text.startswith("/") else question_name(spoken.text)
            self._asked[name] = spoken
        return self._asked


def _reader(account: str, asker: WrittenMessage) -> str:
    return f"{account}/{asker.person}" + ("/group" if asker.in_group else "")


@asynccontextmanager
async def multi_profile_gateway(
    folder: Path,
    profiles: int,
    people: int,
    options: IsolationOptions | None = None,
    *,
    seed: int = 0,
    start: StartInstance = gateway_instance,
) -> AsyncGenerator[tuple[MultiProfileGateway, Canaries]]:
    """Run the profiles during the block, then scan everything they left behind."""
    options, canaries = options or IsolationOptions(), Canaries(seed)
    names = [f"person{number}" for number in range(people)]
    tenants = [
        IsolatedProfile(profile, folder, names, canaries)
        for profile in [DEFAULT_PROFILE, *(f"profile{number}" for number in range(1, profiles))]
    ]
    async with serve_platform(seed=seed) as server:
        for tenant in tenants:
            tenant.set_up(server.url, options, tenants[0])
        scanner = LeakScanner(canaries, server)
        gateway = MultiProfileGateway(server, tenants, seed)
        async with AsyncExitStack() as stack:
            instances = [
                await stack.enter_async_context(start(spec))
                for spec in _specs(folder, tenants, options)
            ]
            group = await stack.enter_async_context(anyio.create_task_group())
            for instance in instances:
                group.start_soon(instance.watch)
            for instance in instances:
                await instance.wait_ready()
            yield gateway, canaries
            for instance in instances:
                instance.end()
    gateway.reports += [instance.report for instance in instances if instance.report]
    scanner.chats()
    for tenant in tenants:
        scanner.left_behind(tenant)


def _specs(
    folder: Path, profiles: Sequence[IsolatedProfile], options: IsolationOptions
) -> list[GatewaySpec]:
    overheard = () if options.logs else tuple(tenant.profile for tenant in profiles)
    first = GatewaySpec(
        folder=str(folder), home=str(profiles[0].home), factory=options.factory, overheard=overheard
    )
    if options.spaces:
        return [first]
    separate: list[GatewaySpec] = []
    for tenant in profiles:
        own = folder / "apart" / tenant.profile
        own.mkdir(parents=True)
        separate.append(structs.replace(first, folder=str(own), home=str(tenant.home)))
    return separate


class ForwardingChannel:
    """Forwards everything to another channel; subclasses introduce a leak."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._last: Inbound | None = None

    @property
    def caps(self) -> ChannelCapabilities:
        return self._channel.caps

    async def run(self, deliver: Callable[[Inbound], Awaitable[None]]) -> None:
        async def forward(inbound: Inbound) -> None:
            self._last = inbound
            await anyio.lowlevel.checkpoint()
            await deliver(self.changed(inbound, self._last))

        await self._channel.run(forward)

    async def send(self, to: Address, post: Outbound) -> Receipt:
        return await self._channel.send(self.redirect(to, self._last), post)

    def changed(self, inbound: Inbound, last: Inbound) -> Inbound:
        return inbound

    def redirect(self, to: Address, last: Inbound | None) -> Address:
        return to


class LastChatChannel(ForwardingChannel):
    """Sends to the chat of the last message, as a channel with a global current chat would."""

    def redirect(self, to: Address, last: Inbound | None) -> Address:
        return Address(to.channel, last.address.chat) if last else to


class LastUserChannel(ForwardingChannel):
    """Gives every message the details of the last one, as a process-wide variable would."""

    def changed(self, inbound: Inbound, last: Inbound) -> Inbound:
        return structs.replace(inbound, about=last.about)


@asynccontextmanager
async def open_last_chat_channel(parts: ChannelDeps) -> AsyncGenerator[Channel]:
    async with open_test_channel(parts) as channel:
        yield LastChatChannel(channel)


@asynccontextmanager
async def open_last_user_channel(parts: ChannelDeps) -> AsyncGenerator[Channel]:
    async with open_test_channel(parts) as channel:
        yield LastUserChannel(channel)
