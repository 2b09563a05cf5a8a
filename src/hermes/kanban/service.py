"""Work on boards: choose one, change it in a transaction, and announce the change."""

from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec import Struct

from hermes.kanban.board_settings import BoardSettings
from hermes.kanban.boards import Access, Boards
from hermes.kanban.tasks import (
    NewTask,
    chat_subscription,
    create_task,
    is_same_chat,
    subscribe,
)
from hermes.kanban.worker import Worker, worker_of
from hermes.kit.clock import Clock
from hermes.kit.text import did_you_mean
from hermes.ports.board import Board, BoardRows
from hermes.ports.board_watches import PutBoardWatch, watch_of
from hermes.ports.store import Store
from hermes.schema.board import (
    Attachment,
    BoardSubscription,
    Comment,
    Task,
    TaskEvent,
    TaskRun,
)
from hermes.schema.errors import UsageError
from hermes.schema.scope import Address, Role, Scope

R = TypeVar("R")
BOARD_TOPIC = "kanban"
"""The bus topic that is woken with a board's name when the board changed."""
MAX_EVENTS = 50


class TaskDetails(Struct, frozen=True, kw_only=True):
    """A task with everything that belongs to it."""

    task: Task
    parents: Sequence[str]
    children: Sequence[str]
    comments: Sequence[Comment]
    events: Sequence[TaskEvent]
    runs: Sequence[TaskRun]
    attachments: Sequence[Attachment]

    @property
    def latest_summary(self) -> str | None:
        return next((run.summary for run in reversed(self.runs) if run.summary), None)

    @property
    def cost(self) -> float | None:
        """US dollars for the model calls of all runs, as far as prices are known."""
        known = [(run.metadata or {}).get("cost_usd") for run in self.runs]
        numbers = [one for one in known if isinstance(one, int | float)]
        return sum(numbers) if numbers else None


class DispatchReport(Struct, frozen=True, kw_only=True):
    """What a pass over a board did, or in a dry run would do."""

    promoted: Sequence[str] = ()
    started: Sequence[str] = ()
    ended: Sequence[str] = ()
    skipped: Sequence[tuple[str, str]] = ()
    """Tasks that could not be started, each with the reason."""


class ServeOptions(Struct, frozen=True, kw_only=True):
    """Options that override the settings while boards are served on the command line."""

    interval: int | None = None
    max_workers: int | None = None
    failure_limit: int | None = None
    dispatches: bool | None = None
    """Whether tasks are started; None uses `kanban.dispatch_in_gateway`."""
    force: bool = False
    """Wait while another program works on the tasks, instead of refusing to start."""
    report: Callable[[DispatchReport], None] | None = None
    """Called with what each pass over a board did."""


class DownloadedFile(Struct, frozen=True):
    """`name` is that of the URL, perhaps empty."""

    data: bytes
    content_type: str
    name: str


class GoalVerdict(Struct, frozen=True):
    """Whether a task is done, and if not, what is missing."""

    met: bool
    reason: str = ""


class BoardAgents(Protocol):
    """Operations that need an open profile: workers, models and the network."""

    async def dispatch(
        self, boards: Sequence[str], options: ServeOptions, *, dry_run: bool
    ) -> Sequence[DispatchReport]:
        """One pass over some boards; return when the started tasks have ended."""
        ...

    async def work(self, worker: Worker) -> None:
        """Work on a task that another process has claimed for this profile."""
        ...

    async def serve(self, options: ServeOptions) -> None:
        """Work on the tasks of all boards until this process is asked to end."""
        ...

    async def ask(self, slot: str, instructions: str, text: str) -> str:
        """The answer of the model that the settings name for this purpose."""
        ...

    async def judge(self, session: str, text: str) -> GoalVerdict:
        """Whether a session's transcript shows that what `text` asks for is done.

        Raises `ModelError` if the judge cannot be asked.
        """
        ...

    async def pull_request_problem(self, address: str) -> str:
        """Why the required checks of a pull request have not passed; empty if they have."""
        ...

    async def download(self, url: str, limit: int) -> DownloadedFile:
        """A file from a public address. Raises `UsageError` that says why it failed."""
        ...


class KnownChats(Struct, frozen=True):
    """The platforms of all profiles of the home, and this profile's home channels."""

    platforms: Collection[str] = ()
    homes: Mapping[str, Address] = {}


class BoardService:
    """The boards of a home, as used by one profile."""

    def __init__(
        self,
        *,
        boards: Boards,
        store: Store,
        clock: Clock,
        profile: str,
        lock: str,
        subscribes_creators: bool,
        environment: Mapping[str, str],
        list_profiles: Callable[[], Sequence[str]],
        known_chats: Callable[[], KnownChats],
        wake: Callable[[str, str], None],
        agents: BoardAgents,
        settings: BoardSettings,
    ) -> None:
        from anyio import Lock  # noqa: PLC0415 - help and completion do without

        self.boards = boards
        self.profile = profile
        self.lock = lock
        """The name of claims by hand: host and process id."""
        self.subscribes_creators = subscribes_creators
        self._environment = environment
        self._store = store
        self._clock = clock
        self._list_profiles = list_profiles
        self.known_chats = known_chats
        self._wake = wake
        self.agents = agents
        self.settings = settings
        self._open: dict[Path, _OpenBoard] = {}
        self._opening = Lock()
        self._serving = 0

    def now(self) -> int:
        return int(self._clock.now().timestamp())

    async def pause(self, seconds: float) -> None:
        await self._clock.sleep(seconds)

    async def read(self, slug: str | None, work: Callable[[BoardRows], R]) -> R:
        board = await self._board(self.boards.choose(slug))
        return await board.read(work)

    async def write(self, slug: str | None, work: Callable[[BoardRows], R]) -> R:
        chosen = self.boards.choose(slug)
        board = await self._board(chosen)
        result = await board.write(work)
        self.wake(chosen)
        return result

    async def write_quietly(self, slug: str, work: Callable[[BoardRows], R]) -> R:
        """Write without waking those that wait for changes."""
        board = await self._board(self.boards.choose(slug))
        return await board.write(work)

    def wake(self, slug: str) -> None:
        """Announce a change."""
        self._wake(BOARD_TOPIC, slug)

    @contextmanager
    def serving(self) -> Generator[None]:
        """While a worker of this process starts the tasks of the profile."""
        self._serving += 1
        try:
            yield
        finally:
            self._serving -= 1

    @property
    def is_served(self) -> bool:
        return self._serving > 0

    async def remember_creator(
        self, slug: str | None, subscription: BoardSubscription, scope: Scope
    ) -> None:
        """Wake this scope's session when the task ends."""
        watch = watch_of(self.boards.choose(slug), subscription, scope)
        await self._store.commit(PutBoardWatch(watch))

    async def problems(self, slug: str | None) -> Mapping[tuple[str, str, str, str], str]:
        """Why chats are not notified: by task, platform, chat and thread."""
        watches = await self._store.board_watches.of_board(self.boards.choose(slug))
        return {
            (watch.task, watch.platform, watch.chat, watch.thread): watch.problem
            for watch in watches
        }

    def check_assignee(self, assignee: str | None) -> None:
        """Raise `UsageError` unless the assignee is a profile, or a person as `@name`."""
        profiles = self._list_profiles()
        if assignee and not assignee.startswith("@") and assignee not in profiles:
            similar = did_you_mean(assignee, profiles)
            known = f"Profiles: {', '.join(profiles)}. A person is written as @name."
            raise UsageError(f"There is no profile {assignee!r}.", hint=similar or known)

    def check_address(self, platform: str) -> None:
        """Raise `UsageError` unless a bot of this home could send there."""
        known = sorted(self.known_chats().platforms)
        if platform not in known:
            hint = did_you_mean(platform, known) or f"Platforms: {', '.join(known) or 'none yet'}."
            raise UsageError(f"No profile uses the platform {platform!r}.", hint=hint)

    def require_access(self, slug: str | None, wanted: Access) -> None:
        """Raise `UsageError` unless the agents of this profile may use the board."""
        board = self.boards.choose(slug)
        if not self.boards.info(board).allows(self.profile, wanted):
            verb = "read" if wanted is Access.READ else "change"
            raise UsageError(f"The profile {self.profile} may not {verb} the board {board}.")

    def profiles(self) -> Sequence[str]:
        return self._list_profiles()

    def agent_in(self, scope: Scope) -> Worker | None:
        """The worker that acts in this scope, None for other agents of the owner.

        Raises `UsageError` for an agent that works for someone else.
        """
        if scope.role is not Role.OWNER:
            raise UsageError("Only the owner's agents may use the board.")
        return worker_of(scope, self._environment)

    async def close(self) -> None:
        boards, self._open = self._open, {}
        for board in boards.values():
            await board.board.close()

    async def _board(self, slug: str) -> Board:
        """Open a board once, and again if its file was replaced."""
        path = self.boards.paths(slug).database
        async with self._opening:
            found = self._open.get(path)
            if found is not None and found.file == _file_number(path):
                return found.board
            if found is not None:
                await self._open.pop(path).board.close()
            board = await self.boards.open_board(path)
            self._open[path] = _OpenBoard(board, _file_number(path))
            return board


class _OpenBoard(Struct, frozen=True):
    board: Board
    file: tuple[int, int] | None


def _file_number(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


@asynccontextmanager
async def closing(service: BoardService) -> AsyncGenerator[BoardService]:
    try:
        yield service
    finally:
        await service.close()


def task_details(rows: BoardRows, task: Task) -> TaskDetails:
    return TaskDetails(
        task=task,
        parents=rows.parents(task.id),
        children=rows.children(task.id),
        comments=rows.comments(task.id),
        events=rows.events(task.id, MAX_EVENTS),
        runs=rows.runs(task.id),
        attachments=rows.attachments(task.id),
    )


async def add_for_creator(
    service: BoardService, board: str | None, new: NewTask, scope: Scope | None
) -> tuple[Task, bool]:
    """Return the task, and whether the creator's chat is notified of it."""
    now = service.now()
    address = scope.address if scope is not None and service.subscribes_creators else None

    def work(rows: BoardRows) -> tuple[Task, BoardSubscription | None]:
        task = create_task(rows, new, now)
        if scope is None or address is None:
            return task, None
        user = scope.asker.user or None
        wanted = chat_subscription(task.id, address, scope.profile or service.profile, user)
        subscribe(rows, wanted, now)
        # The task may also have subscriptions of other chats, inherited from its parents.
        own = (
            subscription
            for subscription in rows.subscriptions(task.id)
            if is_same_chat(subscription, wanted)
        )
        return task, next(own, None)

    task, made = await service.write(board, work)
    if made is not None and scope is not None:
        await service.remember_creator(board, made, scope)
    return task, made is not None
