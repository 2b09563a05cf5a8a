"""Chats that follow tasks, over an outage of their platform and a restart: each gets one notice."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from hermes.app.board_settings import HomeBoardSettings
from hermes.app.board_worker import BoardDelivery
from hermes.app.followup_router import FollowupRouter
from hermes.app.storage import open_blobs
from hermes.bus.memory import MemoryBus
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.kanban.board_worker import BoardWorker
from hermes.kanban.boards import Boards
from hermes.kanban.dispatcher import Dispatcher, DispatchRules
from hermes.kanban.lifecycle import Completion, block_task, complete_task
from hermes.kanban.notifier import Notifier
from hermes.kanban.running_tasks import RunningTasks, RunRecords
from hermes.kanban.service import BoardService, KnownChats, closing
from hermes.kanban.tasks import NewTask, create_task, subscribe
from hermes.kanban.worker import Worker
from hermes.kit.file_lock import FileLock
from hermes.ports.board import BoardRows
from hermes.schema.board import BlockKind, BoardSubscription, Task
from hermes.schema.scope import Address, Scope
from hermes.session.keys import SessionSource, build_session_key
from hermes.store.board import SqliteBoard
from hermes.testing.channel import FakeChannel
from hermes.testing.clock import FakeClock
from support.board_agents import NoAgents
from support.gateway import GatewayHarness, gateway_harness

PROFILES = ("default", "ada", "eve")
HALF_OUTAGE = 300.0


class ProfileGateway:
    """A gateway of one profile with its boards, as a process has it between two restarts."""

    def __init__(self, root: Path, name: str, gateway: GatewayHarness, lock: FileLock) -> None:
        clock, bus = gateway.clock, gateway.bus

        def wake(topic: str, board: str) -> None:
            bus.wake(topic, board)
            self.service.boards.wake_file.write_bytes(b"")

        self.service = BoardService(
            boards=Boards(root=root, environment={}, open_board=SqliteBoard.open),
            store=gateway.store,
            clock=clock,
            profile=name,
            lock="host:1",
            subscribes_creators=True,
            environment={},
            list_profiles=lambda: PROFILES,
            known_chats=lambda: KnownChats({"telegram"}, {"telegram": Address("telegram", "7")}),
            wake=wake,
            agents=NoAgents(),
            settings=HomeBoardSettings(Home(root, root), {}),
        )
        records = RunRecords(service=self.service, lock=f"host:1:{name}", failure_limit=2)
        tasks = RunningTasks(work=_no_work, records=records, process_workers=set())
        home = Home(root, root if name == "default" else root / "profiles" / name, name)
        self.worker = BoardWorker(
            service=self.service,
            clock=clock,
            bus=bus,
            dispatcher=Dispatcher(
                service=self.service,
                rules=DispatchRules(),
                workers=tasks,
                can_run=lambda profile: False,
                is_gone=lambda run: False,
                is_alive=lambda run: False,
            ),
            notifier=Notifier(
                service=self.service,
                store=gateway.store,
                delivery=BoardDelivery(
                    home=home,
                    env=Env({}),
                    clock=clock,
                    bus=bus,
                    blobs=open_blobs(home),
                    channels=(gateway.channel.name,),
                ),
                followups=FollowupRouter(gateway.store, bus),
            ),
            tasks=tasks,
            lock=lock,
            clean_up=_nothing_left,
            plan=_nothing_left,
            interval=60.0,
        )


async def _no_work(worker: Worker, task: Task) -> None:
    raise AssertionError("nobody works here")


async def _nothing_left(board: str) -> None:
    pass


@asynccontextmanager
async def process(
    root: Path, clock: FakeClock, channels: Mapping[str, FakeChannel]
) -> AsyncGenerator[Mapping[str, ProfileGateway]]:
    """Gateways of all profiles during the block, then end them like a power failure."""
    (root / "kanban").mkdir(exist_ok=True)
    lock = FileLock(root / "kanban" / ".dispatcher.lock")
    async with AsyncExitStack() as stack:
        found: dict[str, ProfileGateway] = {}
        for name, channel in channels.items():
            path = root / "profiles" / name
            path.mkdir(parents=True, exist_ok=True)
            gateway = await stack.enter_async_context(
                gateway_harness(path, channel=channel, clock=clock)
            )
            found[name] = ProfileGateway(root, name, gateway, lock)
            await stack.enter_async_context(closing(found[name].service))
        group = await stack.enter_async_context(anyio.create_task_group())
        for one in found.values():
            group.start_soon(one.worker.run)
        yield found
        group.cancel_scope.cancel()


class Followed:
    """A task with the chat that follows it; `creator` is woken as well."""

    def __init__(self, number: int, *, broken: bool) -> None:
        self.profile = PROFILES[number % len(PROFILES)]
        self.chat, self.broken = f"c{number}", broken
        self.has_creator = number % 5 == 0 and not broken
        self.task = ""

    async def begin(self, service: BoardService) -> None:
        platform = "nowhere" if self.broken else "fake"

        def work(rows: BoardRows) -> BoardSubscription:
            task = create_task(rows, NewTask(title="report", assignee="@bob"), service.now())
            self.task = task.id
            wanted = BoardSubscription(
                task_id=task.id,
                platform=platform,
                chat_id=self.chat,
                notifier_profile=self.profile,
            )
            subscribe(rows, wanted, service.now())
            return rows.subscriptions(task.id)[0]

        made = await service.write(None, work)
        if self.has_creator:
            key = build_session_key(SessionSource(platform="fake", chat_id=self.chat))
            address = Address("fake", self.chat)
            scope = Scope(self.profile, "s1", "", "/work", address=address, key=key)
            await service.remember_creator(None, made, scope)

    def check(self, channel: FakeChannel, news: int) -> None:
        """Whether `news` events were reported once each, and each woke the creator once."""
        notices = [one for one in channel.texts_in(self.chat) if f"Kanban {self.task}" in one]
        answers = [one for one in channel.texts_in(self.chat) if one.startswith("re: A task you")]
        assert len(notices) == len(set(notices)) == (0 if self.broken else news), notices
        assert len(answers) == (news if self.has_creator else 0), answers


async def follow_through_an_outage(root: Path, count: int) -> str:
    clock = FakeClock()
    channels = {name: FakeChannel() for name in PROFILES}
    followed = [Followed(number, broken=number % 20 == 7) for number in range(count)]
    async with process(root, clock, channels) as gateways:
        for one in followed:
            await one.begin(gateways[one.profile].service)
        for channel in channels.values():
            channel.down = True
        service = gateways["default"].service
        for one in followed[: count // 2]:
            await service.write(None, lambda rows, one=one: _block(rows, one.task, service))
        await clock.advance(HALF_OUTAGE)
    async with process(root, clock, channels) as gateways:
        service = gateways["default"].service
        for one in followed[count // 2 :]:
            await service.write(None, lambda rows, one=one: _block(rows, one.task, service))
        await clock.advance(HALF_OUTAGE)
        assert not any(channel.posts for channel in channels.values())
        for channel in channels.values():
            channel.down = False
        await clock.advance(HALF_OUTAGE)
        for one in followed:
            one.check(channels[one.profile], 1)
        subscriptions = await service.read(None, lambda rows: rows.subscriptions())
        assert len(subscriptions) == count
        parked = await _problems(gateways)
        assert parked == {
            one.task: f"The profile {one.profile} has no platform nowhere."
            for one in followed
            if one.broken
        }
        for one in followed:
            await service.write(None, lambda rows, one=one: _complete(rows, one.task, service))
        await clock.advance(HALF_OUTAGE)
        for one in followed:
            one.check(channels[one.profile], 2)
        left = await service.read(None, lambda rows: rows.subscriptions())
        # A subscription ends with its task, but not before its last message.
        assert sorted(one.task_id for one in left) == sorted(parked)
    delivered = sum(not one.broken for one in followed)
    return f"{count} subscriptions: {delivered} delivered once, {len(parked)} parked, 0 deleted"


async def _problems(gateways: Mapping[str, ProfileGateway]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in gateways.values():
        problems = await one.service.problems(None)
        found |= {key[0]: problem for key, problem in problems.items() if problem}
    return found


def _block(rows: BoardRows, task: str, service: BoardService) -> None:
    block_task(rows, task, "which one?", BlockKind.NEEDS_INPUT, service.now(), author="bob")


def _complete(rows: BoardRows, task: str, service: BoardService) -> None:
    complete_task(rows, task, Completion(summary="written"), service.now())


async def test_outage_and_restart_lose_and_repeat_no_notification(tmp_path: Path) -> None:
    await follow_through_an_outage(tmp_path, 10)


@pytest.mark.soak
@pytest.mark.timeout(1_200)
async def test_a_hundred_subscriptions(tmp_path: Path, prove: Callable[[str], None]) -> None:
    prove(await follow_through_an_outage(tmp_path, 100))


def board_delivery(home: Home, clock: FakeClock) -> BoardDelivery:
    return BoardDelivery(
        home=home,
        env=Env({}),
        clock=clock,
        bus=MemoryBus(),
        blobs=open_blobs(home),
        channels=("telegram@ada",),
    )


def test_chat_of_another_profiles_bot_can_be_reached(tmp_path: Path) -> None:
    home, clock = Home(tmp_path, tmp_path), FakeClock()
    delivery = board_delivery(home, clock)
    assert not delivery.problem(Address("telegram@ada", "42"))
    assert delivery.problem(Address("telegram@eve", "42"))


async def test_only_files_below_the_boards_folder_are_sent(tmp_path: Path) -> None:
    folder, outside = tmp_path / "attachments", tmp_path / "secret"
    (folder / "t_1").mkdir(parents=True)
    (folder / "t_1" / "poem.md").write_text("roses")
    outside.write_text("key")
    (folder / "t_1" / "link").symlink_to(outside)
    home = Home(tmp_path, tmp_path)
    paths = [str(folder / "t_1" / "poem.md"), str(folder / "t_1" / "link"), str(outside)]
    (sent,) = await board_delivery(home, FakeClock()).attachments(folder, paths)
    assert (sent.media.name, sent.size) == ("poem.md", 5)
    assert await open_blobs(home).read(sent.media.digest) == b"roses"
