"""Serve the catalog: models, toolsets, skills and server capabilities."""

import anyio
import anyio.to_thread
from aiohttp import web
from msgspec import Struct, structs

from hermes import __version__
from hermes.api.context import (
    SESSION_ID_HEADER,
    SESSION_KEY_HEADER,
    ApiContext,
    Route,
    json_response,
)
from hermes.api.errors import ApiError, invalid
from hermes.api.settings import ApiSettings, ModelRoute
from hermes.api.turn_gate import SOURCE
from hermes.app.build import App
from hermes.config.home import DEFAULT_PROFILE
from hermes.config.sections import FreeTable
from hermes.kit.text import did_you_mean, one_line
from hermes.models.settings import ModelOverrides
from hermes.schema.errors import ConfigError


class ModelCard(Struct, frozen=True, kw_only=True):
    id: str
    object: str = "model"
    created: int
    owned_by: str = "hermes"
    permission: list[str] = []
    root: str
    parent: str | None = None


class ModelList(Struct, frozen=True):
    data: list[ModelCard]
    object: str = "list"


class Toolset(Struct, frozen=True, kw_only=True):
    name: str
    label: str
    description: str
    enabled: bool
    configured: bool
    tools: list[str]


class Toolsets(Struct, frozen=True):
    data: list[Toolset]
    object: str = "list"


class Skill(Struct, frozen=True, kw_only=True):
    """A skill; `own` is false for skills shipped with Hermes or from external folders."""

    name: str
    description: str
    category: str
    own: bool


class Skills(Struct, frozen=True):
    data: list[Skill]
    object: str = "list"


class Capabilities(Struct, frozen=True, kw_only=True):
    object: str = "hermes.api_server.capabilities"
    platform: str = "hermes-agent"
    version: str
    model: str
    auth: FreeTable
    runtime: FreeTable
    features: dict[str, bool | str]
    endpoints: dict[str, dict[str, str]]


AGENT_MODEL = "hermes-agent"
"""A name of the agent that always works, whatever its configured name is."""

_FEATURES = (
    "chat_completions", "chat_completions_streaming", "client_tools", "side_calls",
    "idempotency_keys", "run_list", "image_input", "image_url_input", "file_input", "run_roles",
    "tool_choice", "response_format", "signed_callbacks", "tool_progress_events",
    "approval_events", "reasoning_streaming", "responses_streaming", "cors", "metrics", "openapi",
)  # fmt: skip
"""Features without routes of their own; the others are derived from the routes served."""

_ABSENT_FEATURES = (
    "admin_config_rw", "jobs_admin", "memory_write_api", "audio_api", "realtime_voice",
)  # fmt: skip
"""Features that clients ask about and that this server does not have."""

_FEATURES_BY_ROUTE = {
    "responses_api": "/v1/responses",
    "run_submission": "/v1/runs",
    "run_status": "/v1/runs/{run_id}",
    "run_events_sse": "/v1/runs/{run_id}/events",
    "run_stop": "/v1/runs/{run_id}/stop",
    "run_steer": "/v1/runs/{run_id}/steer",
    "run_approval_response": "/v1/runs/{run_id}/approval",
    "run_clarify_response": "/v1/runs/{run_id}/clarify",
    "skills_api": "/v1/skills",
    "session_resources": "/api/sessions",
    "session_chat": "/api/sessions/{session_id}/chat",
    "session_chat_streaming": "/api/sessions/{session_id}/chat/stream",
    "session_fork": "/api/sessions/{session_id}/fork",
    "session_events_sse": "/api/sessions/{session_id}/events",
    "jobs_api": "/api/jobs",
}

_ENDPOINTS = {
    "health": ("GET", "/health"),
    "health_detailed": ("GET", "/health/detailed"),
    "models": ("GET", "/v1/models"),
    "chat_completions": ("POST", "/v1/chat/completions"),
    "responses": ("POST", "/v1/responses"),
    "runs": ("POST", "/v1/runs"),
    "run_status": ("GET", "/v1/runs/{run_id}"),
    "run_events": ("GET", "/v1/runs/{run_id}/events"),
    "run_approval": ("POST", "/v1/runs/{run_id}/approval"),
    "run_stop": ("POST", "/v1/runs/{run_id}/stop"),
    "skills": ("GET", "/v1/skills"),
    "toolsets": ("GET", "/v1/toolsets"),
    "sessions": ("GET", "/api/sessions"),
    "session_create": ("POST", "/api/sessions"),
    "session": ("GET", "/api/sessions/{session_id}"),
    "session_update": ("PATCH", "/api/sessions/{session_id}"),
    "session_delete": ("DELETE", "/api/sessions/{session_id}"),
    "session_messages": ("GET", "/api/sessions/{session_id}/messages"),
    "session_fork": ("POST", "/api/sessions/{session_id}/fork"),
    "session_chat": ("POST", "/api/sessions/{session_id}/chat"),
    "session_chat_stream": ("POST", "/api/sessions/{session_id}/chat/stream"),
}
"""Endpoints by the names that clients know; all others are named after their path."""


def routes(context: ApiContext) -> list[Route]:
    async def models(request: web.Request) -> web.Response:
        return json_response(_models(context, context.app(request)))

    async def model(request: web.Request) -> web.Response:
        app, name = context.app(request), request.match_info["model_id"]
        choose_model(context.settings, app, name)
        cards = {card.id: card for card in _models(context, app).data}
        # The agent also answers to names that are not listed.
        own = next(iter(cards.values()))
        return json_response(cards.get(name) or structs.replace(own, id=name))

    async def toolsets(request: web.Request) -> web.Response:
        return json_response(_toolsets(context.app(request)))

    async def skills(request: web.Request) -> web.Response:
        return json_response(await anyio.to_thread.run_sync(_skills, context.app(request)))

    async def capabilities(request: web.Request) -> web.Response:
        served = {resource.canonical for resource in request.app.router.resources()}
        return json_response(_capabilities(context, context.app(request), served))

    return [
        Route(
            "GET", "/v1/models", models, "Model names accepted by this server.", answer=ModelList
        ),
        Route("GET", "/v1/models/{model_id}", model, "One model.", answer=ModelCard),
        Route(
            "GET", "/v1/toolsets", toolsets, "Toolsets available to API requests.", answer=Toolsets
        ),
        Route("GET", "/v1/skills", skills, "Skills available to the agent.", answer=Skills),
        Route(
            "GET",
            "/v1/capabilities",
            capabilities,
            "Capabilities of this server.",
            answer=Capabilities,
        ),
    ]


def _skills(app: App) -> Skills:
    """List all skills of the profile, read from their folders."""
    return Skills(
        [
            Skill(
                name=skill.name,
                description=skill.head.description,
                category=skill.category,
                own=skill.own,
            )
            for skill in app.learning.skill_catalog.skills()
        ]
    )


def _models(context: ApiContext, app: App) -> ModelList:
    created = int(context.started_at.timestamp())
    own, *others = model_names(context.settings, app)
    cards = [ModelCard(id=own, created=created, root=own)]
    cards += [
        ModelCard(
            id=name, created=created, root=context.settings.model_routes[name].model, parent=own
        )
        for name in others
    ]
    return ModelList(cards)


def _toolsets(app: App) -> Toolsets:
    offered = set(app.toolbox.tools_on(SOURCE))
    found: list[Toolset] = []
    for name, names in sorted(app.toolbox.toolsets().items()):
        tools = sorted(names)
        enabled = [tool for tool in tools if tool in offered]
        found.append(
            Toolset(
                name=name,
                label=name.replace("_", " ").replace("-", " ").capitalize(),
                description=f"Tools: {', '.join(tools) or 'none'}.",
                enabled=bool(enabled),
                configured=bool(enabled),
                tools=enabled or tools,
            )
        )
    return Toolsets(found)


def _capabilities(context: ApiContext, app: App, served: set[str]) -> Capabilities:
    by_route = {name: path in served for name, path in _FEATURES_BY_ROUTE.items()}
    paths = sorted(path for path in served if not path.startswith("/p/"))
    features: dict[str, bool | str] = {
        "session_continuity_header": SESSION_ID_HEADER,
        "session_key_header": SESSION_KEY_HEADER,
    }
    endpoints = {path.strip("/").replace("/", "_") or "root": {"path": path} for path in paths}
    endpoints |= {
        name: {"method": endpoint[0], "path": endpoint[1]} for name, endpoint in _ENDPOINTS.items()
    }
    return Capabilities(
        version=__version__,
        model=model_names(context.settings, app)[0],
        auth={"type": "bearer", "required": True},
        runtime={
            "mode": "server_agent",
            "tool_execution": "server",
            "split_runtime": False,
            "max_concurrent_runs": context.settings.max_turns,
            "profile": app.home.profile,
            "async_delivery": "runs, and sessions with a callback",
        },
        features=features
        | dict.fromkeys(_FEATURES, True)
        | dict.fromkeys(_ABSENT_FEATURES, False)
        | by_route,
        endpoints=endpoints,
    )


def model_names(settings: ApiSettings, app: App) -> list[str]:
    """Return the agent's own name, then those of the model routes."""
    profile = app.home.profile
    own = settings.model_name or (AGENT_MODEL if profile == DEFAULT_PROFILE else profile)
    return [own, *(name for name in settings.model_routes if name != own)]


class ChosenModel(Struct, frozen=True, kw_only=True):
    """The model of a request: the agent's own, a route, or one `at_provider`.

    The answer contains `name`: the model that serves the request, not the one the client asked for.
    """

    name: str
    route: ModelRoute | None = None
    at_provider: bool = False


def choose_model(
    settings: ApiSettings, app: App, name: str | None, provider: str | None = None
) -> ChosenModel:
    """Choose the model by its name in the request; unknown names mean the agent's own model.

    Raises `ApiError` for an unknown name with `strict_models`, and for a route that does not belong
    to the provider.
    """
    if name and (route := settings.model_routes.get(name)):
        if provider and provider != route.provider:
            message = f"Model {name!r} is a route to another provider. Leave out the provider."
            raise invalid(message, param="provider", code="provider_conflict")
        return ChosenModel(name=name, route=route)
    if name in {AGENT_MODEL, app.home.profile}:
        return ChosenModel(name=name)
    known = model_names(settings, app)
    if not name or name == known[0]:
        return ChosenModel(name=name or known[0])
    if settings.strict_models:
        quoted = one_line(name, 100)
        message = f"Model {quoted!r} not found. {did_you_mean(name, known)}".strip()
        raise ApiError(404, "model_not_found", f"{message} See /v1/models.", param="model")
    if provider:
        route = ModelRoute(model=name, provider=provider)
        return ChosenModel(name=name, route=route, at_provider=True)
    return ChosenModel(name=known[0])


async def require_provider(app: App, chosen: ChosenModel) -> None:
    """Raises `ApiError` if the provider that the request names cannot be used here."""
    if not chosen.at_provider or chosen.route is None or app.runtimes.enabled:
        return
    wanted = ModelOverrides(model=chosen.route.model, provider=chosen.route.provider)
    try:
        await app.models.model_for_flags(wanted)
    except ConfigError as error:
        message = f"Provider {one_line(chosen.route.provider, 100)!r} cannot be used: {error}"
        raise invalid(message, param="provider", code="provider_not_available") from error
