"""The board's HTTP routes for settings, and for the descriptions of profiles."""

from pathlib import Path

import msgspec
from anyio.to_thread import run_sync
from msgspec import Struct, structs

from hermes.kanban.board_settings import ProfileDescription
from hermes.kanban.service import BoardService
from hermes.kit.text import one_line
from hermes.ports.feature import RouteRequest
from hermes.schema.board import JsonObject
from hermes.schema.errors import ModelError, NotFound, UsageError

MAX_DESCRIPTION = 1_000
_PLANNER = "default"
"""The profile that plans tasks if the settings name none."""


class OrchestrationBody(Struct, frozen=True, kw_only=True):
    """What is missing stays; an empty profile removes the setting."""

    orchestrator_profile: str | None = None
    default_assignee: str | None = None
    auto_decompose: bool | None = None
    auto_promote_children: bool | None = None


class DescriptionBody(Struct, frozen=True, kw_only=True):
    description: str = ""


class AutomaticBody(Struct, frozen=True, kw_only=True):
    overwrite: bool = False


async def get_config(service: BoardService, request: RouteRequest) -> JsonObject:
    return msgspec.to_builtins(await run_sync(service.settings.view))


async def get_orchestration(service: BoardService, request: RouteRequest) -> JsonObject:
    found = await run_sync(service.settings.orchestration)
    return {
        **structs.asdict(found),
        "auto_promote_children": True,
        "resolved_orchestrator_profile": found.orchestrator_profile or _PLANNER,
        "resolved_default_assignee": found.default_assignee,
        "active_profile": service.profile,
    }


async def put_orchestration(service: BoardService, request: RouteRequest) -> JsonObject:
    body: OrchestrationBody = request.body
    if body.auto_promote_children is False:
        raise UsageError(
            "Tasks always get ready when the tasks before them are done.",
            hint="To hold one back: hermes kanban schedule TASK",
        )
    changes = {
        name: value.strip() if isinstance(value, str) else value
        for name, value in structs.asdict(body).items()
        if value is not None and name != "auto_promote_children"
    }
    for name in ("orchestrator_profile", "default_assignee"):
        if profile := changes.get(name):
            _check_profile(service, profile, UsageError)
    await run_sync(service.settings.change_orchestration, changes)
    return await get_orchestration(service, request)


async def get_profiles(service: BoardService, request: RouteRequest) -> JsonObject:
    names = service.profiles()
    found = await run_sync(lambda: [service.settings.description(one) for one in names])
    profiles = [
        {
            "name": name,
            "is_default": name == service.profile,
            "description": one.text,
            "description_auto": one.automatic,
        }
        for name, one in zip(names, found, strict=True)
    ]
    return {"profiles": profiles}


async def describe_profile(service: BoardService, request: RouteRequest) -> JsonObject:
    """Store a description that a person wrote; an empty one removes it."""
    body: DescriptionBody = request.body
    profile, text = request.path["name"], body.description.strip()
    _check_profile(service, profile, NotFound)
    if len(text) > MAX_DESCRIPTION:
        raise UsageError(f"A description has at most {MAX_DESCRIPTION} characters.")
    await run_sync(service.settings.describe, profile, ProfileDescription(text))
    return {"ok": True, "profile": profile, "description": text}


async def describe_automatically(service: BoardService, request: RouteRequest) -> JsonObject:
    """Let the model describe a profile. That it did not is an answer, too, as `ok: false`."""
    body: AutomaticBody = request.body
    profile = request.path["name"]
    _check_profile(service, profile, NotFound)
    before = await run_sync(service.settings.description, profile)
    answer: JsonObject = {"ok": False, "profile": profile, "description": before.text}
    if before.text and not before.automatic and not body.overwrite:
        return {**answer, "reason": "A person has described it; overwrite replaces that."}
    instructions = Path(__file__).with_name("describe.md").read_text("utf-8").strip()
    sources = await run_sync(service.settings.sources, profile)
    try:
        said = await service.agents.ask("profile_describer", instructions, sources)
    except ModelError as error:
        return {**answer, "reason": str(error)}
    text = one_line(said, MAX_DESCRIPTION)
    if not text:
        return {**answer, "reason": "The model gave an empty answer."}
    await run_sync(service.settings.describe, profile, ProfileDescription(text, automatic=True))
    return {"ok": True, "profile": profile, "description": text, "reason": ""}


def _check_profile(service: BoardService, profile: str, error: type[NotFound | UsageError]) -> None:
    if profile not in service.profiles():
        known = f"Profiles: {', '.join(service.profiles())}."
        raise error(f"There is no profile {profile!r}.", hint=known)
