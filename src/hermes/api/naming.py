"""The names under which the agent and its model routes are asked for."""

from hermes.api.errors import ApiError
from hermes.api.settings import ApiSettings, ModelRoute
from hermes.app.build import App
from hermes.config.home import DEFAULT
from hermes.kit.text import did_you_mean, one_line

AGENT = "hermes-agent"
"""What the agent is called everywhere, whatever else its name is."""


def model_names(settings: ApiSettings, app: App) -> list[str]:
    """The agent's own name first, then those of the routes."""
    profile = app.home.profile
    own = settings.model_name or (AGENT if profile == DEFAULT else profile)
    return [own, *(name for name in settings.model_routes if name != own)]


def route_for(settings: ApiSettings, app: App, name: str | None) -> ModelRoute | None:
    """The route of that name; None for the agent as it is. Raises `ApiError` for any other."""
    if not name:
        return None
    if route := settings.model_routes.get(name):
        return route
    known = model_names(settings, app)
    if name in {AGENT, app.home.profile, *known}:
        return None
    shown = one_line(name, 100)
    told = f"There is no model {shown!r} here. {did_you_mean(name, known)}".strip()
    raise ApiError(404, "model_not_found", f"{told} See /v1/models.", param="model")
