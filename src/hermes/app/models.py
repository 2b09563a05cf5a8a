"""Which model a session talks to: the flags, its own past, or the settings decide."""

import logging

from hermes.config.env import Env
from hermes.config.home import Home
from hermes.kit.clock import Clock
from hermes.models.build import build_model
from hermes.models.discover import find_local, list_models
from hermes.models.resilient import Resilient
from hermes.models.resolve import ModelUnnamed, Resolved, resolve, resolve_live
from hermes.models.settings import Flags, ModelSettings
from hermes.ports.blobs import Blobs
from hermes.ports.model import Model
from hermes.schema.errors import ConfigError
from hermes.schema.sessions import Session

log = logging.getLogger(__name__)


class ModelDesk:
    """Builds each model once. What a person chose in this process wins over the session's past."""

    def __init__(
        self, home: Home, env: Env, settings: ModelSettings, blobs: Blobs, clock: Clock
    ) -> None:
        self._home = home
        self._env = env
        self._settings = settings
        self._blobs = blobs
        self._clock = clock
        self._chosen: Flags | None = None
        self._built: dict[Flags, Resilient] = {}
        self._last: Model | None = None

    def choose(self, flags: Flags) -> None:
        self._chosen = flags

    async def find(self) -> Model:
        """The model a new session would get. Raises `ConfigError` when there is none."""
        self._last = await self._model(self._chosen or Flags())
        return self._last

    async def model_for(self, session: Session) -> Model:
        """Raises `ConfigError` with the next command to type when there is none."""
        if self._chosen is not None:
            self._last = await self._model(self._chosen)
        elif session.model:
            self._last = await self._same_as_before(session)
        else:
            self._last = await self._model(Flags())
        return self._last

    async def switch(self, name: str, provider: str | None, *, everywhere: bool) -> str:
        flags = Flags(model=name, provider=provider or "")
        self._last = await self._model(flags)
        self._chosen = flags
        where = "from the next message on"
        if everywhere:
            self._keep(self._last)
            where += ", and for new sessions"
        return f"Using {self.current()} {where}."

    def _keep(self, model: Model) -> None:
        from hermes.config.edit import set_setting  # noqa: PLC0415 - a turn never edits settings

        set_setting(self._home, self._env, "model.default", model.name)
        set_setting(self._home, self._env, "model.provider", model.provider)

    def current(self) -> str:
        """The model in use, or the one that would be; nothing is asked over the network."""
        if self._last is not None:
            return f"{self._last.provider}/{self._last.name}"
        try:
            target = resolve(self._settings, self._env.get, self._chosen or Flags()).primary
        except ModelUnnamed as unnamed:
            return f"the first model of {unnamed.target.provider} at {unnamed.target.base_url}"
        except ConfigError:
            return "no model yet"
        return f"{target.provider}/{target.model}"

    async def aclose(self) -> None:
        for model in self._built.values():
            await model.aclose()

    async def _same_as_before(self, session: Session) -> Model:
        try:
            return await self._model(Flags(model=session.model, provider=session.provider))
        except ConfigError as error:
            log.warning("session %s cannot keep its model: %s", session.id, error)
            return await self._model(Flags())

    async def _model(self, flags: Flags) -> Resilient:
        if flags not in self._built:
            resolved = await self.resolve(flags)
            self._built[flags] = build_model(resolved, self._blobs, self._clock)
        return self._built[flags]

    async def resolve(self, flags: Flags) -> Resolved:
        env = self._env.get
        return await resolve_live(self._settings, env, flags, lambda: find_local(env), list_models)
