"""The services of an open profile's features."""

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from hermes.ports.feature_catalog import FEATURES, load_attribute

if TYPE_CHECKING:
    from hermes.app.build import App


@runtime_checkable
class Closable(Protocol):
    """A service that holds connections."""

    async def close(self) -> None: ...


class FeatureServices:
    """Builds each service when it is first used."""

    def __init__(self, app: "App") -> None:
        self._app = app
        self._built: dict[str, object] = {}

    def get(self, feature: str) -> Any:
        """The service of a feature of the catalog."""
        if feature not in self._built:
            self._built[feature] = load_attribute(FEATURES[feature].service)(self._app)
        return self._built[feature]

    async def aclose(self) -> None:
        """Close the services that were used."""
        built, self._built = self._built, {}
        for service in built.values():
            if isinstance(service, Closable):
                await service.close()
