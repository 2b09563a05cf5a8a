"""The board's HTTP routes that let the home channel of a platform follow a task."""

from hermes.kanban.service import BoardService
from hermes.kanban.tasks import find_task, subscribe
from hermes.ports.board import BoardRows
from hermes.ports.feature import RouteRequest
from hermes.schema.board import BoardSubscription, JsonObject
from hermes.schema.errors import NotFound
from hermes.schema.scope import Address


async def get_home_channels(service: BoardService, request: RouteRequest) -> JsonObject:
    """The home channels, and whether each follows the task `task_id`."""
    homes, task = service.known_chats().homes, request.query.get("task_id", "")

    def work(rows: BoardRows) -> set[tuple[str, str, str]]:
        found = rows.subscriptions(task) if task else ()
        return {(one.platform, one.chat_id, one.thread_id) for one in found}

    followed = await service.read(request.text("board"), work)
    shown = [_channel(one) for _, one in sorted(homes.items())]
    return {"home_channels": [{**one, "subscribed": _key(one) in followed} for one in shown]}


async def follow_at_home(service: BoardService, request: RouteRequest) -> JsonObject:
    home, task = _home(service, request), request.path["task"]
    wanted = BoardSubscription(
        task_id=task,
        platform=home.channel,
        chat_id=home.chat,
        thread_id=home.thread or "",
        notifier_profile=service.profile,
    )
    await service.write(request.text("board"), lambda rows: subscribe(rows, wanted, service.now()))
    return {"ok": True, "task_id": task, "home_channel": _channel(home)}


async def unfollow_at_home(service: BoardService, request: RouteRequest) -> JsonObject:
    home, task = _home(service, request), request.path["task"]

    def work(rows: BoardRows) -> None:
        find_task(rows, task)
        rows.remove_subscription(task, home.channel, home.chat, home.thread or "")

    await service.write(request.text("board"), work)
    return {"ok": True, "task_id": task, "home_channel": _channel(home)}


def _home(service: BoardService, request: RouteRequest) -> Address:
    platform = request.path["platform"]
    home = service.known_chats().homes.get(platform)
    if home is None:
        raise NotFound(
            f"The platform {platform!r} has no home channel.", hint="Send /sethome in a chat of it."
        )
    return home


def _channel(home: Address) -> JsonObject:
    return {
        "platform": home.channel,
        "chat_id": home.chat,
        "thread_id": home.thread or "",
        "name": "Home",
    }


def _key(channel: JsonObject) -> tuple[object, object, object]:
    return channel["platform"], channel["chat_id"], channel["thread_id"]
