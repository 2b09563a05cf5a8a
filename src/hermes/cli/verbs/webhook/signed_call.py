"""Send a signed test call to a webhook route of the running gateway."""

import aiohttp
import anyio

from hermes.channels.webhook.routes import Route
from hermes.channels.webhook.signatures import Scheme, sign
from hermes.kit.clock import Clock
from hermes.kit.ids import new_id
from hermes.schema.errors import HermesError

_TIMEOUT = 30.0
_MAX_RESPONSE = 65536


def call_route(url: str, route: Route, body: bytes, clock: Clock) -> tuple[int, str]:
    """The response's status and text. Raises `HermesError` if nothing answers."""
    return anyio.run(_call, url, route, body, clock)


async def _call(url: str, route: Route, body: bytes, clock: Clock) -> tuple[int, str]:
    headers = {"Content-Type": "application/json", **_signature_headers(route, body, clock)}
    timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, trust_env=False) as session,
            session.post(url, data=body, headers=headers, allow_redirects=False) as response,
        ):
            text = await response.content.read(_MAX_RESPONSE)
            return response.status, text.decode(errors="replace")
    except TimeoutError as error:
        raise HermesError(f"{url} did not answer within {_TIMEOUT:g} seconds") from error
    except (aiohttp.ClientError, OSError) as error:
        raise HermesError(
            f"Cannot reach {url}: {_reason(error)}",
            hint="Set platforms.webhook.enabled to true, then: hermes gateway restart",
        ) from error


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or str(error.os_error)
    return str(error) or type(error).__name__


def _signature_headers(route: Route, body: bytes, clock: Clock) -> dict[str, str]:
    delivery = new_id("test")
    if route.insecure:
        return {"X-Request-ID": delivery}
    return sign(route.secret, delivery, clock.now(), body, route.scheme or Scheme.STANDARD)
