"""The agent's device: its login at the homeserver, and the keys that belong to it."""

import logging
from collections.abc import Callable
from pathlib import Path

import anyio.to_thread
from msgspec import Struct, structs

from hermes.channels.matrix.client_api import ClientApi, LoggedOut
from hermes.channels.matrix.cross_signing import sign_device
from hermes.channels.matrix.encryption import Encryption, LostDevice
from hermes.channels.matrix.objects import Login
from hermes.channels.matrix.recovery_key import stored_recovery_key
from hermes.channels.state_file import StateFile
from hermes.kit.errors import TemporaryError
from hermes.kit.file_lock import FileLock
from hermes.ports.channel import Offline, UnknownOutcome
from hermes.schema.errors import ConfigError

log = logging.getLogger(__name__)

DEVICE_NAME = "Hermes"
LOGIN_FILE = "login.json"


class Credentials(Struct, frozen=True, kw_only=True):
    """How to log in: with a token, or with a name and a password."""

    homeserver: str
    token: str = ""
    user: str = ""
    password: str = ""
    device: str = ""
    recovery_key: str = ""
    recovery_key_file: Path | None = None


class OpenDevice(Struct, frozen=True, kw_only=True):
    """A device that is logged in; without `encryption`, encrypted rooms are not served.

    `account_keys` are the account's public keys, if it has any and the device is signed.
    """

    login: Login
    encryption: Encryption | None = None
    account_keys: dict[str, str] = {}

    @property
    def user(self) -> str:
        return self.login.user_id


class Device:
    """Logs in when it is first needed; one process at a time may use the keys in `folder`."""

    def __init__(
        self,
        *,
        api: ClientApi,
        credentials: Callable[[], Credentials],
        folder: Path,
        encrypts: bool,
    ) -> None:
        self._api = api
        self._credentials = credentials
        self._folder = folder
        self._encrypts = encrypts
        self._stored_login = StateFile(folder / LOGIN_FILE, Login)
        self._lock = FileLock(folder / "lock")
        self._locked = False
        self._opening = anyio.Lock()
        self._open: OpenDevice | None = None

    async def ready(self) -> OpenDevice:
        """The device, logged in. Raises `Offline`, or `ConfigError` if that is impossible."""
        async with self._opening:
            if self._open is None:
                try:
                    self._open = await self._prepare()
                except UnknownOutcome as error:
                    raise Offline(str(error)) from error
            return self._open

    async def renew(self, error: LoggedOut) -> None:
        """Log in again, with a replaced token or the password."""
        credentials, stored = self._credentials(), await self._stored()
        if credentials.token:
            if credentials.token == self._api.token:
                raise error
        elif not credentials.password:
            raise error
        elif stored is not None:
            # The keys of a deleted device must not be used again.
            device = stored.device_id if error.soft else ""
            await self._store(structs.replace(stored, access_token="", device_id=device))
        self.close_keys()

    def close_keys(self) -> None:
        if self._open is not None and self._open.encryption is not None:
            self._open.encryption.close()
        self._open = None

    def close(self) -> None:
        self.close_keys()
        if self._locked:
            self._lock.release()
            self._locked = False

    async def _prepare(self) -> OpenDevice:
        if not self._locked:
            self._locked = await anyio.to_thread.run_sync(self._lock.try_acquire)
            if not self._locked:
                raise Offline("Another program uses the keys of this Matrix device.")
        credentials = self._credentials()
        login = await self._log_in(credentials)
        if not self._encrypts:
            return OpenDevice(login=login)
        if not login.device_id:
            raise ConfigError(
                "The Matrix access token is not tied to a device, so encryption is not possible.",
                hint="Use MATRIX_PASSWORD, or set MATRIX_E2EE_MODE=off.",
            )
        encryption = Encryption(api=self._api, login=login, folder=self._folder)
        try:
            await encryption.publish()
            keys = await self._signed(login, encryption, credentials)
        except BaseException as error:
            encryption.close()
            if isinstance(error, LostDevice) and not credentials.token and credentials.password:
                log.warning("%s A new device is logged in.", error)
                return await self._replace(credentials)
            raise
        return OpenDevice(login=login, encryption=encryption, account_keys=keys)

    async def _replace(self, credentials: Credentials) -> OpenDevice:
        login = await self._with_password(credentials, "")
        encryption = Encryption(api=self._api, login=login, folder=self._folder)
        await encryption.publish()
        keys = await self._signed(login, encryption, credentials)
        return OpenDevice(login=login, encryption=encryption, account_keys=keys)

    async def _signed(
        self, login: Login, encryption: Encryption, credentials: Credentials
    ) -> dict[str, str]:
        """Sign the device, and return the account's public key by its name."""
        key, path = credentials.recovery_key, credentials.recovery_key_file
        if not key.strip() and path is not None:
            key = await stored_recovery_key(self._api, login.user_id, credentials.password, path)
        return await sign_device(self._api, login, encryption, key)

    async def _log_in(self, credentials: Credentials) -> Login:
        if credentials.token:
            self._api.token = credentials.token
            login = await self._api.who_am_i()
            if credentials.user and credentials.user != login.user_id:
                raise ConfigError(
                    f"The Matrix access token belongs to {login.user_id}, "
                    f"not to {credentials.user}.",
                    hint="Correct MATRIX_USER_ID or MATRIX_ACCESS_TOKEN.",
                )
            return login
        stored = await self._stored()
        device = credentials.device
        if stored is not None and credentials.user in {stored.user_id, _local_part(stored.user_id)}:
            if stored.access_token:
                self._api.token = stored.access_token
                try:
                    return await self._api.who_am_i()
                except LoggedOut as error:
                    log.warning("%s Logging in again.", error)
                    device = stored.device_id if error.soft else credentials.device
            else:
                device = stored.device_id or credentials.device
        return await self._with_password(credentials, device)

    async def _with_password(self, credentials: Credentials, device: str) -> Login:
        self._api.token = ""
        login = await self._api.log_in(credentials.user, credentials.password, device, DEVICE_NAME)
        self._api.token = login.access_token
        await self._store(login)
        return login

    async def _stored(self) -> Login | None:
        return await anyio.to_thread.run_sync(self._stored_login.read)

    async def _store(self, login: Login) -> None:
        try:
            await self._stored_login.write(login)
        except OSError as error:
            raise TemporaryError(f"The login cannot be stored: {error}.") from error


def _local_part(user: str) -> str:
    return user.removeprefix("@").partition(":")[0]
