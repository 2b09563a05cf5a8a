"""Model control for chats whose turns another gateway runs."""

from collections.abc import Sequence

from hermes.ports.model import Model
from hermes.schema.errors import UsageError
from hermes.schema.sessions import Session


class RemoteModels:
    """Refuses changes, because the other gateway chooses the model."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def choose(self, name: str, provider: str | None) -> Model:
        raise self._unavailable()

    async def check_name(self, name: str, provider: str | None) -> str:
        raise self._unavailable()

    async def save_default(self, model: Model) -> Sequence[str]:
        raise self._unavailable()

    def current(self, session: Session) -> str:
        return f"chosen by the gateway at {self._url}"

    async def offers(self) -> Sequence[str]:
        raise self._unavailable()

    def _unavailable(self) -> UsageError:
        return UsageError(
            f"The gateway at {self._url} runs the turns of this chat and chooses the model.",
            hint="Change the model there.",
        )
