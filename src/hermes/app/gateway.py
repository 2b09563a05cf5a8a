"""One profile's gateway, put together from its open app."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from msgspec import Struct, structs

from hermes.app.build import App
from hermes.app.chat_rules import gateway_rules, key_rules, platform_rules
from hermes.app.command_services import SupervisedPlatforms, command_services
from hermes.app.directory import Directory
from hermes.app.proxying import far_models
from hermes.commands.command import Context
from hermes.commands.registry import standard_commands
from hermes.config.home import Home, user_home
from hermes.config.schema import Config
from hermes.gateway.door import ChatDoor
from hermes.gateway.gateway import Gateway, GatewayRules, House, Lent, nobody_waits
from hermes.gateway.hooks import Hooks, NoHooks
from hermes.gateway.letters import platform_of
from hermes.gateway.mirror import Mirror
from hermes.gateway.pacer import Pacer
from hermes.gateway.pairing import Pairing
from hermes.gateway.postscript import Postscript
from hermes.gateway.quotas import Quotas
from hermes.gateway.returning import await_return
from hermes.gateway.shortcuts import shortcuts_from
from hermes.gateway.targets import Unreached, homes_from, parse_targets, resolve
from hermes.kit.retry import Backoff
from hermes.ports.channel import Channel
from hermes.schema.errors import UsageError
from hermes.schema.scope import Address
from hermes.schema.sessions import Session
from hermes.session.conversation import Conversation

log = logging.getLogger(__name__)


def build_door(app: App, channels: Mapping[str, Channel], *, multiplexed: bool) -> ChatDoor:
    """Who may speak through this profile's own channels; several profiles need names in keys."""
    space = app.home.profile if multiplexed else ""
    rules = {
        platform_of(name): platform_rules(platform_of(name), app.config, app.chats, app.env)
        for name in channels
    }
    pairing = Pairing(app.home.pairing, app.clock)
    commands = standard_commands().names
    return ChatDoor(app.home.profile, rules, pairing, commands, key_rules(app.config, space))


class ChatParts(Struct, frozen=True, kw_only=True):
    """`lent` are channels of other profiles; `park` sets interrupted turns aside.

    `retry` says how soon whatever fails is tried again, if not as usual.
    """

    channels: Mapping[str, Channel]
    door: ChatDoor
    directory: Directory
    lent: Mapping[str, Lent] = {}
    pacers: Mapping[str, Pacer] = {}
    hooks: Hooks = NoHooks()
    linger: Callable[[], Awaitable[None]] = nobody_waits
    restart: Callable[[], None] | None = None
    park: bool = False
    retry: Backoff | None = None


def build_gateway(app: App, parts: ChatParts) -> Gateway:
    built: list[Gateway] = []
    elsewhere = far_models(app.config, app.env)

    async def begin_again(asker: Address | None) -> None:
        if asker is not None:
            await await_return(app.store, asker)
        if parts.restart is not None:
            parts.restart()

    restart = None if parts.restart is None else begin_again

    def context(conversation: Conversation) -> Context:
        platforms = SupervisedPlatforms(built[0].supervisor)
        services = command_services(app, platforms=platforms, restart=restart)
        if elsewhere is None:
            return Context(conversation, app.models, app, services=services)
        services = structs.replace(services, offers=elsewhere)
        return Context(conversation, elsewhere, app, services=services)

    registry = standard_commands()
    house = House(
        store=app.store,
        clock=app.clock,
        runner=app.runner,
        profile=app.home.profile,
        channels=parts.channels,
        lent=parts.lent,
        pacers=parts.pacers,
        hooks=parts.hooks,
        linger=parts.linger,
        approvals=app.approvals,
        door=parts.door,
        registry=registry,
        shortcuts=shortcuts_from(app.config, registry.names),
        context=context,
        cwd=chat_folder(app.home, app.config, app.env),
        refusal=Quotas(app.store, app.clock, app.chats.powers).refusal,
        places=_places(app, parts.channels),
        met=parts.directory.meet,
        running=partial(begun_for, app),
        tools=app.toolbox.on,
        postscript=_postscript(app),
        mirror=Mirror(app.store, app.clock, parts.door.space, app.runner.holding),
    )
    rules = gateway_rules(app.config, app.chats)
    if parts.park:
        rules = structs.replace(rules, limits=structs.replace(rules.limits, park=True))
    if parts.retry is not None:
        rules = _retried(rules, parts.retry)
    built.append(Gateway(house, rules))
    app.later.chats.is_answered_by(built[0].actors.wake)
    app.reviews.is_delivered_by(built[0].posted)
    app.outgoing.is_delivered_by(built[0].posted)
    return built[0]


def _retried(rules: GatewayRules, backoff: Backoff) -> GatewayRules:
    return structs.replace(
        rules,
        actors=structs.replace(rules.actors, backoff=backoff),
        delivery=structs.replace(rules.delivery, backoff=backoff),
        supervisor=structs.replace(rules.supervisor, backoff=backoff),
    )


def begun_for(app: App, session: Session) -> Sequence[datetime]:
    """When the processes began that run for a session, or ran for the one before it."""
    return [
        one.started
        for one in app.processes.running
        if one.scope.session == session.id or (session.key and one.scope.key == session.key)
    ]


def _postscript(app: App) -> Postscript:
    display = app.config.display
    return Postscript(
        verifies=display.file_mutation_verifier,
        fields=display.runtime_footer.fields if display.runtime_footer.enabled else (),
        folder=chat_folder(app.home, app.config, app.env),
        home=str(user_home(app.env)),
        window=app.models.window_of,
    )


def chat_folder(home: Home, config: Config, env: Mapping[str, str]) -> str:
    """Where the agent works for people who have no folder of their own: theirs is a chat.

    Unless somebody named another one it is a folder of the profile, not the user's own home:
    what a chat may change is never where a shell or a key is looked for. Where commands run on
    another machine, `terminal.cwd` is a folder of that one.
    """
    here = "" if config.terminal.backend == "ssh" else config.terminal.cwd
    given = env.get("MESSAGING_CWD", "").strip() or here
    path = Path(given).expanduser()
    return str(path if path.is_absolute() else home.path / "workspace")


def _places(app: App, channels: Mapping[str, Channel]) -> Callable[[str], tuple[Address, ...]]:
    def places(text: str) -> tuple[Address, ...]:
        """What cannot be reached is logged, and the answer goes where the question came from."""
        homes = homes_from(app.env, app.config.platforms)
        try:
            found = resolve(parse_targets(text), homes, platforms=channels)
        except UsageError as error:
            log.warning("nothing can be delivered to %r: %s", text, error.sentence)
            return ()
        for one in found.unreached:
            log.warning("%s", _unreached(one))
        return found.addresses

    return places


def _unreached(one: Unreached) -> str:
    return f"{one.target} leads nowhere: {one.why}"
