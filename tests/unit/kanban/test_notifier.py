"""Notifications of a board's events: each once, each subscription for itself."""

from collections.abc import Sequence
from pathlib import Path

from hermes.gateway.messages import OutboxMessage, outbox_post, read_outbox_message
from hermes.kanban.attachments import attach_bytes
from hermes.kanban.lifecycle import Completion, block_task, complete_task, unblock_task
from hermes.kanban.notifier import MAX_EVENTS, Notifier
from hermes.kanban.service import BoardService
from hermes.kanban.tasks import NewTask, assign_task, create_task, subscribe
from hermes.ports.board import BoardRows
from hermes.ports.channel import Attachment
from hermes.ports.message_sender import Followups
from hermes.ports.store import Store, Write
from hermes.schema.board import BlockKind, BoardSubscription
from hermes.schema.errors import StoreError
from hermes.schema.messages import Media, Trust
from hermes.schema.scope import Address, Scope
from hermes.testing.clock import FakeClock


class Outbox:
    """Writes to the real outbox; chats named in `gone` cannot be reached, `down` stores nothing."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.gone: set[str] = set()
        self.down = False
        self.files: list[str] = []

    def problem(self, address: Address) -> str:
        return "There is no such chat." if address.chat in self.gone else ""

    async def attachments(self, folder: Path, paths: Sequence[str]) -> Sequence[Attachment]:
        files = [Path(path).relative_to(folder) for path in paths]
        return [Attachment(Media("", "text/plain", one.name), 1) for one in files]

    def rows(
        self, key: str, address: Address, text: str, attachments: Sequence[Attachment] = ()
    ) -> Sequence[Write]:
        if self.down:
            raise StoreError("The disk is full.")
        self.files += [one.media.name for one in attachments]
        return [outbox_post(key, OutboxMessage(address=address, text=text, at=self._clock.now()))]

    def wake(self, address: Address) -> None:
        pass


class Sessions(Followups):
    """Records which sessions were woken, with what."""

    def __init__(self) -> None:
        self.woken: list[str] = []
        self.texts: list[str] = []

    def rows(
        self, scope: Scope, key: str, text: str, *, trust: Trust = Trust.DATA
    ) -> Sequence[Write]:
        self.texts.append(text)
        return []

    def wake(self, scope: Scope) -> None:
        self.woken.append(scope.key)


def notifier(
    service: BoardService, store: Store, outbox: Outbox, sessions: Sessions | None = None
) -> Notifier:
    return Notifier(
        service=service,
        store=store,
        delivery=outbox,
        followups=sessions or Sessions(),
    )


async def sent(store: Store, *chats: str) -> dict[str, list[str]]:
    """The texts in the outbox by chat."""
    found: dict[str, list[str]] = {chat: [] for chat in chats}
    for topic in await store.queues.topics("outbox:telegram"):
        items = await store.queues.claim("outbox:telegram", topic, "test", None, 100)
        for item in items:
            message = read_outbox_message(item.body)
            found[message.address.chat].append(message.text)
    return found


async def add_task(service: BoardService, *chats: str, profile: str = "default") -> str:
    def work(rows: BoardRows) -> str:
        task = create_task(rows, NewTask(title="report", assignee="ada"), service.now())
        for chat in chats:
            one = BoardSubscription(
                task_id=task.id, platform="telegram", chat_id=chat, notifier_profile=profile
            )
            subscribe(rows, one, service.now())
        return task.id

    return await service.write(None, work)


async def finish(service: BoardService, task_id: str) -> None:
    done = Completion(summary="written\nand checked")
    await service.write(None, lambda rows: complete_task(rows, task_id, done, service.now()))


async def test_each_subscription_is_notified_once_and_a_broken_one_waits(
    service: BoardService, store: Store, clock: FakeClock
) -> None:
    outbox = Outbox(clock)
    outbox.gone = {"3"}
    task = await add_task(service, "1", "2", "3")
    await finish(service, task)
    for _ in range(2):
        # A new notifier each time, as after a restart.
        await notifier(service, store, outbox).notify("default")
    text = f"✔ @ada Kanban {task} completed — report\nwritten"
    assert await sent(store, "1", "2", "3") == {"1": [text], "2": [text], "3": []}
    watches = {one.chat: one.problem for one in await store.board_watches.of_board("default")}
    assert watches == {"3": "There is no such chat."}
    outbox.gone = set()
    subscriptions = await service.read(None, lambda rows: rows.subscriptions(task))
    assert [one.chat_id for one in subscriptions] == ["3"]
    assert await notifier(service, store, outbox).notify("default") == 1
    subscriptions = await service.read(None, lambda rows: rows.subscriptions(task))
    assert not subscriptions
    assert not await store.board_watches.of_board("default")


async def test_nothing_is_lost_while_the_store_cannot_be_written(
    service: BoardService, store: Store, clock: FakeClock
) -> None:
    outbox = Outbox(clock)
    task = await add_task(service, "1")
    await finish(service, task)
    outbox.down = True
    assert await notifier(service, store, outbox).notify("default") == 0
    outbox.down = False
    assert await notifier(service, store, outbox).notify("default") == 1


async def test_other_profiles_serve_their_own_subscriptions(
    service: BoardService, store: Store, clock: FakeClock
) -> None:
    task = await add_task(service, "1", profile="eve")
    await finish(service, task)
    assert await notifier(service, store, Outbox(clock)).notify("default") == 0


async def test_session_that_created_the_task_is_woken_once(
    service: BoardService, store: Store, clock: FakeClock
) -> None:
    sessions, outbox = Sessions(), Outbox(clock)
    task = await add_task(service, "1")
    (made,) = await service.read(None, lambda rows: rows.subscriptions(task))
    key = "agent:main:telegram:dm:1"
    scope = Scope(profile="default", session="s", run="r", workspace="/", key=key)
    await service.remember_creator(None, made, scope)
    await service.write(
        None,
        lambda rows: block_task(
            rows, task, "which year?", BlockKind.NEEDS_INPUT, service.now(), author="ada"
        ),
    )
    for _ in range(2):
        await notifier(service, store, outbox, sessions).notify("default")
    assert sessions.woken == [key]
    assert "is blocked" in sessions.texts[0]
    assert "which year?" in sessions.texts[0]


async def test_earlier_events_are_not_repeated_to_a_new_subscriber(
    service: BoardService, store: Store, clock: FakeClock
) -> None:
    task = await add_task(service)
    await finish(service, task)
    one = BoardSubscription(task_id=task, platform="telegram", chat_id="1")
    await service.write(None, lambda rows: subscribe(rows, one, service.now()))
    assert await notifier(service, store, Outbox(clock)).notify("default") == 0


async def test_unreachable_chat_does_not_delay_the_others(
    service: BoardService, store: Store, clock: FakeClock
) -> None:
    outbox = Outbox(clock)
    outbox.gone = {"1"}
    await finish(service, await add_task(service, "1"))
    await notifier(service, store, outbox).notify("default")
    task = await add_task(service, "2")

    def fill(rows: BoardRows) -> None:
        for _ in range(MAX_EVENTS + 1):
            rows.add_event(task, "heartbeat", service.now(), None, None)

    await service.write(None, fill)
    await finish(service, task)
    assert await notifier(service, store, outbox).notify("default") == 1


async def test_more_events_than_a_page_are_sent_in_one_pass(
    service: BoardService, store: Store, clock: FakeClock
) -> None:
    task = await add_task(service, "1")

    def fill(rows: BoardRows) -> None:
        for _ in range(MAX_EVENTS + 1):
            rows.add_event(task, "crashed", service.now(), None, None)

    await service.write(None, fill)
    assert await notifier(service, store, Outbox(clock)).notify("default") == MAX_EVENTS + 1


async def test_repeated_block_is_reported(
    service: BoardService, store: Store, clock: FakeClock
) -> None:
    task = await add_task(service, "1")

    def work(rows: BoardRows) -> None:
        for _ in range(2):
            kind, now = BlockKind.NEEDS_INPUT, service.now()
            block_task(rows, task, "which year?", kind, now, author="ada")
            unblock_task(rows, task, now)

    await service.write(None, work)
    await notifier(service, store, Outbox(clock)).notify("default")
    assert (await sent(store, "1"))["1"] == [
        f"⏸ @ada Kanban {task} blocked: which year?",
        f"⏸ @ada Kanban {task} blocked again and needs triage: which year?",
    ]


async def test_chat_gets_instructions_for_a_task_that_waits_for_a_person(
    service: BoardService, store: Store, clock: FakeClock
) -> None:
    task = await add_task(service, "1")
    now = service.now()
    await service.write(None, lambda rows: assign_task(rows, task, "@bob", now))
    await notifier(service, store, Outbox(clock)).notify("default")
    ((text,),) = (await sent(store, "1")).values()
    assert text == f"🔄 @bob Kanban {task} → ready\nAnswer: /kanban answer {task} TEXT"


async def test_artifacts_that_the_board_keeps_are_sent_with_the_message(
    service: BoardService, store: Store, clock: FakeClock
) -> None:
    task, outbox = await add_task(service, "1"), Outbox(clock)
    kept = await attach_bytes(service, None, task, "poem.md", b"roses")
    done = Completion(summary="written", artifacts=(kept.stored_path, "/etc/passwd"))
    await service.write(None, lambda rows: complete_task(rows, task, done, service.now()))
    await notifier(service, store, outbox).notify("default")
    assert outbox.files == ["poem.md"]
