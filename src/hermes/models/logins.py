"""Where one can log in instead of holding a key."""

from msgspec import Struct


class DeviceLogin(Struct, frozen=True, kw_only=True):
    """Where to log in, and as which program. `pkce` ties the code to whoever asked for it."""

    device_url: str
    token_url: str
    client_id: str
    scope: str = ""
    pkce: bool = False
