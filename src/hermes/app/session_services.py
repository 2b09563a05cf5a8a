"""Services for commands about a session: context usage, pins, handoff, instruction files."""

import os
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from pathlib import Path

import msgspec
from anyio.to_thread import run_sync
from msgspec import structs

from hermes.agent.history import (
    CompactionLimits,
    compaction_threshold,
    request_tokens,
    total_tokens,
)
from hermes.agent.prompts import section_sizes
from hermes.app.build import App
from hermes.app.chat_directory import load_send_targets
from hermes.app.prompt_context import (
    file_provenance,
    instruction_files,
    printable,
    read_instructions,
)
from hermes.channels import MANIFESTS
from hermes.commands.services import ContextUsage, HandoffCaller, InstructionFile
from hermes.compaction.pins import Pins
from hermes.compaction.service import CompactionOptions, CompactionResult
from hermes.compaction.view import CompactionState
from hermes.config.home import Home
from hermes.gateway.authorization import access_rules_from
from hermes.gateway.messages import OutboxMessage, address_of_topic, outbox_post, wake_outbox
from hermes.gateway.people import LinkedAccount, People
from hermes.gateway.platform_settings import canonical_id
from hermes.gateway.session_keys import keys_at
from hermes.kit.clock import Clock
from hermes.kit.files import write_error_hint
from hermes.kit.ids import new_id
from hermes.ports.chat_records import PutSessionLocation, SessionLocation
from hermes.ports.store import ChangeSession
from hermes.schema.errors import ToolError, UsageError
from hermes.schema.scope import OWNER, Address, Requester, Role, Scope, platform_of
from hermes.schema.sessions import Session, SessionChange, SessionFilter
from hermes.session.keys import DIRECT_CHAT, ChatId
from hermes.tools.provenance.file_provenance import FileProvenance
from hermes.tools.provenance.instruction_files import INSTRUCTION_FILES

_CHARACTERS_PER_TOKEN = 4
MAX_SESSIONS = 50
"""How many sessions of a platform are searched for a person's last chat."""


class SessionWindow:
    """A session's context usage and compaction; reading does not wait for a running turn."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._pins = Pins(app.store, app.clock)

    async def usage(self, session: Session, role: Role) -> ContextUsage:
        app = self._app
        model = await app.models.model_for(session)
        rows = await app.store.archive_for(session.principal).messages(session.id)
        messages = [row.message for row in rows]
        compaction = app.runner.compaction
        record, limits = CompactionState(), CompactionLimits()
        if compaction is not None:
            record, limits = await compaction.state(session), compaction.limits
            messages = await compaction.visible_messages(session, messages)
        scope = Scope(
            profile=app.home.profile,
            session=session.id,
            run="",
            workspace=session.cwd,
            source=session.source,
            role=role,
        )
        specs = app.planner.listed_specs(scope, model)
        prompt = section_sizes(session.system)
        parts = {name: size // _CHARACTERS_PER_TOKEN for name, size in prompt.items()}
        parts |= {"tools": request_tokens("", specs, ()), "history": total_tokens(messages)}
        return ContextUsage(
            window=model.window,
            trigger=compaction_threshold(limits, model.window, model.name, model.provider),
            parts=parts,
            times=record.times,
            cost=record.cost,
        )

    async def compress(
        self, session: Session, options: CompactionOptions, *, preview: bool
    ) -> CompactionResult:
        if self._app.runner.compaction is None:
            raise UsageError(
                "Compaction is disabled.",
                hint="Enable it: hermes config set compression.enabled true",
            )
        return await self._app.runner.compact(session, options, preview=preview)

    async def pins(self, session: Session) -> Sequence[str]:
        return await self._pins.texts(session.id)

    async def pin(self, session: Session, text: str) -> None:
        async with self._app.runner.holding(session.id) as lease:
            await self._pins.add(session.id, text, lease.fence)

    async def unpin(self, session: Session, number: int) -> str:
        async with self._app.runner.holding(session.id) as lease:
            return await self._pins.remove(session.id, number, lease.fence)


_END_REASON = "another was handed over"


class ChatHandoff:
    """Implements `hermes.commands.services.HandoffControl`."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def hand_off(
        self, session: Session, platform: str, caller: HandoffCaller | None = None
    ) -> str:
        app = self._app
        role = caller.role if caller is not None else Role.OWNER
        principal = OWNER if role is Role.OWNER else session.principal
        address, asker, key = await self._destination(platform, caller, principal)
        now = app.clock.now()
        moved = SessionChange(key=key, system="", ended_at=None, end_reason="")
        ended = SessionChange(ended_at=now, end_reason=_END_REASON)
        chat = await self._chat_of(key)
        is_private = chat is None or chat.kind == DIRECT_CHAT
        name = f" “{session.title}”" if session.title and is_private else ""
        origin = caller.platform if caller is not None else "the terminal"
        text = f"The session{name} from {origin} continues here. Send a message to go on."
        reply = outbox_post(new_id("send"), OutboxMessage(address=address, text=text, at=now))
        location = PutSessionLocation(
            SessionLocation(
                session=session.id,
                key=key,
                address=address,
                principal=principal,
                role=role,
                asker=asker,
            )
        )
        async with app.runner.holding(session.id) as lease:
            while (old := await app.store.archive_for(OWNER).by_key(key)) and old.id != session.id:
                # Fails if a turn is running there, so it is not interrupted.
                async with app.runner.holding(old.id) as other:
                    await app.store.commit(ChangeSession(old.id, ended), fence=other.fence)
            change = ChangeSession(session.id, moved)
            await app.store.commit(change, location, reply, fence=lease.fence)
        wake_outbox(app.bus, address)
        return f"{platform}, chat {address.chat}"

    async def _destination(
        self, platform: str, caller: HandoffCaller | None, principal: str
    ) -> tuple[Address, Requester, str]:
        """Return where the session goes, whose chat that is, and its session key.

        That is the caller's own chat on the platform, for the owner also the home channel, or else
        the chat where they last had a session of their own.
        """
        linked = await self._linked_account(platform, caller) if caller is not None else None
        try:
            if linked is not None:
                # Most platforms name a direct chat like the person.
                address = Address(linked.channel, linked.chat or linked.user)
                key = await self._key_at(address, principal, linked=linked)
                return address, Requester(user=linked.user), key
            address = self._home_of(platform)
            return address, Requester(), await self._key_at(address, principal)
        except UsageError:
            users = {linked.user} if linked is not None else self._only_owner(platform)
            found = await self._last_chat(platform, principal, users)
            if found is None:
                raise
            return found

    async def _linked_account(self, platform: str, caller: HandoffCaller) -> LinkedAccount | None:
        """The owner's session only goes to accounts that the owner linked, like the role."""
        people = People(self._app.home.people, self._app.clock)
        person = await run_sync(people.find, caller.account)
        own = person.find(caller.account) if person is not None else None
        for one in person.accounts if person is not None else ():
            if platform_of(one.channel) != platform or one.account == caller.account:
                continue
            by_owner = own is not None and own.proof == one.proof == "owner"
            if caller.role is not Role.OWNER or by_owner:
                return one
        if caller.role is not Role.OWNER:
            raise UsageError(
                f"You have no linked account on {platform}.",
                hint="Send /link there in a direct chat with me, then send me the code here.",
            )
        return None

    def _check_direct_owner(self, account: LinkedAccount) -> None:
        """Raise `UsageError` if the person is the owner in groups only."""
        person = People(self._app.home.people, self._app.clock).find(account.account)
        for one in person.accounts if person is not None else ():
            settings = self._app.chats.platform(one.channel)
            rules = access_rules_from(one.channel, self._app.env, settings)
            if one.proof == "owner" and not rules.owners.isdisjoint({one.user, *one.ids}):
                return
        raise UsageError(
            f"{account.account} is an owner in groups only, not in direct chats.",
            hint="The owner can add it to allow_admin_from.",
        )

    def _only_owner(self, platform: str) -> frozenset[str]:
        """The id of the owner on a platform, unless the settings list several."""
        settings = self._app.chats.platform(platform)
        rules = access_rules_from(platform, self._app.env, settings)
        owners = rules.owners | rules.group_owners
        return owners if len(owners) == 1 else frozenset()

    async def _last_chat(
        self, platform: str, principal: str, users: AbstractSet[str]
    ) -> tuple[Address, Requester, str] | None:
        """Where one of these users last had a session of their own; direct chats come first."""
        archive, chats = self._app.store.archive_for(principal), self._app.store.chats
        in_group: tuple[Address, Requester, str] | None = None
        for summary in await archive.list(SessionFilter(source=platform), MAX_SESSIONS):
            session = summary.session
            record = await chats.session_key(session.key) if session.key else None
            if record is None or session.principal != principal:
                continue
            chat = msgspec.json.decode(record.chat, type=ChatId)
            is_direct = chat.kind == DIRECT_CHAT
            user = chat.user or (chat.chat if is_direct else "")
            if not user or canonical_id(platform, user) not in users:
                continue
            found = address_of_topic(record.topic), Requester(user=user), record.key
            if is_direct:
                return found
            in_group = in_group or found
        return in_group

    async def _chat_of(self, key: str) -> ChatId | None:
        record = await self._app.store.chats.session_key(key)
        return None if record is None else msgspec.json.decode(record.chat, type=ChatId)

    def _home_of(self, platform: str) -> Address:
        targets = load_send_targets(self._app.home, self._app.env)
        if platform in targets.homes:
            return structs.replace(targets.homes[platform], channel=platform)
        if platform not in targets.platforms:
            if platform in MANIFESTS:
                raise UsageError(
                    f"{platform} is not set up.",
                    hint=f"Set it up: hermes gateway setup {platform}",
                )
            known = ", ".join(sorted(targets.homes)) or "none"
            raise UsageError(
                f"Unknown platform: {platform}.", hint=f"Platforms with a home channel: {known}."
            )
        raise UsageError(
            f"{platform} has no home channel.", hint="Set one with /sethome in a chat there."
        )

    async def _key_at(
        self, address: Address, principal: str, *, linked: LinkedAccount | None = None
    ) -> str:
        """The session key of the person's chat at this address; a group may have several.

        A direct chat at this address is that of the `linked` account.
        """
        keys = await keys_at(self._app.store, address)
        archive = self._app.store.archive_for(OWNER)
        for key in keys:
            session = await archive.by_key(key)
            if session is not None and session.principal == principal:
                return key
        if len(keys) == 1:
            # Otherwise someone else's next turn would continue this session.
            chat, session = await self._chat_of(keys[0]), await archive.by_key(keys[0])
            is_own = linked is not None or session is None
            if chat is not None and chat.kind == DIRECT_CHAT and is_own:
                if linked is not None and principal == OWNER:
                    await run_sync(self._check_direct_owner, linked)
                return keys[0]
        raise UsageError(
            "You have not talked to me in that chat yet.", hint="Send a message there first."
        )


class ProjectInstructions:
    """Implements `hermes.commands.services.InstructionFiles`."""

    def __init__(self, home: Home, clock: Clock) -> None:
        self._home = home
        self._clock = clock

    @cached_property
    def _provenance(self) -> FileProvenance:
        return file_provenance(self._home, self._clock)

    def list_files(self, workspace: str) -> list[InstructionFile]:
        folder = Path(workspace)
        if not workspace:
            return []
        return [
            InstructionFile(
                printable(path), self._provenance.may_be_followed(path, data, folder), _decode(data)
            )
            for path, data in instruction_files(folder)
        ]

    def trust(self, workspace: str, name: str) -> InstructionFile:
        """Trust a file with its current content; after a change it has to be trusted again."""
        if not workspace:
            raise UsageError("This session has no working directory.")
        path = Path(os.path.realpath(workspace), name)
        real = Path(os.path.realpath(path))
        known = [os.path.realpath(file) for file, _ in instruction_files(Path(workspace))]
        inside = real.is_relative_to(os.path.realpath(workspace)) and real.name in INSTRUCTION_FILES
        if not inside and str(real) not in known:
            raise UsageError(
                f"{name} is not an instruction file.",
                hint=f"Instruction files are named {', '.join(INSTRUCTION_FILES)}; "
                "/trust lists those in use.",
            )
        try:
            data = read_instructions(real)
        except OSError as error:
            raise UsageError(f"Cannot read {printable(path)}: {error.strerror}.") from error
        except ToolError as error:
            raise UsageError(f"Cannot read {printable(path)}: {error}") from error
        try:
            self._provenance.trusted.trust_permanently(real, data)
        except OSError as error:
            raise UsageError(
                f"{printable(real)} is not trusted: cannot save that to {error.filename}: "
                f"{error.strerror}.",
                hint=write_error_hint(error, "Make that file writable, then try again."),
            ) from error
        return InstructionFile(printable(real), True, _decode(data))


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace").strip()
