"""`hermes auth`: keys and logins for model providers."""

import math
from argparse import Namespace
from collections.abc import Sequence
from getpass import getpass

from hermes.app.model_settings import model_settings
from hermes.cli.context import CliContext
from hermes.cli.dialog import check_key
from hermes.cli.output import Printer
from hermes.config.home import ensure_home
from hermes.kit.clock import Clock, SystemClock
from hermes.kit.terminal_text import single_line
from hermes.kit.text import did_you_mean, plural
from hermes.models.auth_file import OAUTH, AuthFile, Credential
from hermes.models.key_pool import KeyStatus, key_statuses, next_key
from hermes.models.providers import CUSTOM, PROVIDERS, find_provider
from hermes.models.selection import configured_keys, configured_provider
from hermes.models.settings import KeyStrategy
from hermes.models.urls import normalize_url
from hermes.schema.errors import UsageError

_NO_KEYS = "No keys yet. Add one: hermes auth add PROVIDER"
_REST_REASONS = {"auth": "rejected", "billing": "no credit", "rate_limit": "rate limited"}


def run(args: Namespace, context: CliContext, clock: Clock | None = None) -> int:
    actions = _AuthActions(context, clock or SystemClock())
    match args.action:
        case "add":
            return actions.add(args.provider, args.key, args.label, oauth=args.oauth)
        case "remove":
            return actions.remove(args.provider, args.which)
        case "reset":
            return actions.reset(args.provider)
        case "status":
            return actions.status(args.provider, as_json=args.json)
        case _:
            return actions.list(args.provider, as_json=args.json)


def masked_key(key: str) -> str:
    """The key's first and last characters."""
    return f"{key[:4]}…{key[-4:]}" if len(key) >= 16 else "…" * bool(key)


class _AuthActions:
    def __init__(self, context: CliContext, clock: Clock) -> None:
        self._context = context
        self._clock = clock
        self._file = AuthFile(context.home().auth)
        self._env = context.profile_env()
        self._settings = model_settings(context.load_config().config)

    def add(self, provider: str, key: str | None, label: str, *, oauth: bool) -> int:
        name = self._provider_name(provider)
        address = self._custom_address() if name == CUSTOM.name else None
        ensure_home(self._context.home())
        if oauth:
            return self._log_in(name, label)
        key = check_key(key or self._read_key(name))
        credential = Credential(access_token=key, label=label, base_url=address)
        made = self._file.add(name, credential, self._clock.now())
        count = len(self._keys_of(name))
        self._context.print(
            f"Added {single_line(made.label)} ({masked_key(made.access_token)}) to {name}, which "
            f"now has {plural(count, 'key')}"
        )
        return 0

    def _custom_address(self) -> str:
        """The custom address in the settings; the key is sent only there."""
        settings = self._settings
        own = settings.base_url if configured_provider(settings) == CUSTOM.name else ""
        url = own or self._env.get("OPENAI_BASE_URL", "").strip()
        if not url:
            raise UsageError(
                "No server address is set for this key.",
                hint="Set its address first: hermes setup --base-url URL --key-stdin",
            )
        return normalize_url(url)

    def _read_key(self, name: str) -> str:
        stdin, prompt = self._context.stdin, f"Key for {name}: "
        line = getpass(prompt, self._context.stderr) if stdin.isatty() else stdin.readline()
        if not (key := line.strip()):
            raise UsageError(
                "No key given.", hint=f"Pass it as an argument: hermes auth add {name} KEY"
            )
        return key

    def _log_in(self, name: str, label: str) -> int:
        login = self._settings.logins.get(name)
        if login is None:
            raise UsageError(
                f"Login is not configured for {name}.",
                hint=f"Add a key instead (hermes auth add {name}), or set device_url, token_url "
                f"and client_id under providers.{name}.oauth in config.yaml: hermes config edit",
            )
        import anyio

        from hermes.models.oauth import OAuthClient

        client = OAuthClient(self._file, self._clock)

        async def log_in() -> Credential:
            started = await client.begin(login)
            page = started.verification_uri_complete or started.verification_uri
            code = single_line(started.user_code)
            self._context.note(f"Open {single_line(page)}\nand enter the code {code}")
            return await client.save(name, await client.wait_for_approval(login, started), label)

        made = anyio.run(log_in)
        self._context.print(f"Logged in to {name} as {single_line(made.label)}")
        return 0

    def remove(self, provider: str, which: str) -> int:
        name = self._provider_name(provider)
        removed = self._file.remove(name, which, self._clock.now())
        self._context.print(f"Removed {single_line(removed.label or removed.id)} from {name}")
        configured = configured_keys(self._settings, self._env.get, name)
        for source in [where for key, where in configured if key == removed.access_token][:1]:
            self._context.note(
                f"hermes: warning: the same key is also in {source} and is still used from there"
            )
        return 0

    def reset(self, provider: str) -> int:
        name = self._provider_name(provider)
        count = self._file.clear_cooldowns(name, self._clock.now())
        self._context.print(f"{plural(count, 'key')} of {name} reset")
        return 0

    def list(self, provider: str | None, *, as_json: bool) -> int:
        names = [self._provider_name(provider)] if provider else self._providers_with_keys()
        rows = [(name, key_status) for name in names for key_status in self._keys_of(name)]
        if as_json:
            self._context.print_json([_json_key(name, row) for name, row in rows])
            return 0
        if not rows:
            self._context.note(_NO_KEYS)
            return 0
        table = [("PROVIDER", "#", "ID", "LABEL", "KEY", "FROM", "STATE")]
        for name, row in rows:
            ids = [known.id for known in self._file.credentials(name)]
            number = str(ids.index(row.id) + 1) if row.id in ids else ""
            label, key = single_line(row.label), masked_key(row.key)
            table.append((name, number, row.id, label, key, row.source, self._state(row)))
        Printer(self._context).table(table)
        return 0

    def status(self, provider: str | None, *, as_json: bool) -> int:
        names = [self._provider_name(provider)] if provider else self._providers_with_keys()
        statuses: list[dict[str, object]] = []
        for name in names:
            keys = self._keys_of(name)
            strategy = self._settings.strategies.get(name, KeyStrategy.FILL_FIRST)
            verdict = next_key(keys, strategy)
            if verdict is None:
                statuses.append({"provider": name, "keys": 0})
                continue
            chosen = _json_key(name, keys[verdict.index])
            statuses.append(
                chosen | {"keys": len(keys), "strategy": strategy, "why": verdict.reason}
            )
        if as_json:
            self._context.print_json(statuses)
            return 0
        if not statuses:
            self._context.note(_NO_KEYS)
        for status in statuses:
            self._context.print(_status_line(status))
        return 0

    def _keys_of(self, name: str) -> Sequence[KeyStatus]:
        return key_statuses(
            configured_keys(self._settings, self._env.get, name),
            self._file.credentials(name),
            self._file.cooldowns(name),
            self._clock.now().timestamp(),
        )

    def _providers_with_keys(self) -> Sequence[str]:
        names = [provider.name for provider in PROVIDERS]
        names += [provider.name for provider in self._settings.custom_providers]
        names += self._file.providers()
        return [name for name in dict.fromkeys(names) if self._keys_of(name)]

    def _provider_name(self, provider: str) -> str:
        customs = {
            custom_provider.name.lower(): custom_provider.name
            for custom_provider in self._settings.custom_providers
        }
        if custom := customs.get(provider.lower().removeprefix("custom:")):
            return custom
        known = find_provider(provider)
        if known is not None:
            return known.name
        if provider in {*self._file.providers(), *self._settings.logins}:
            return provider
        near = did_you_mean(provider, [*(one.name for one in PROVIDERS), *customs.values()])
        raise UsageError(
            f"Unknown provider: {provider!r}.",
            hint=near or f"Known providers: {', '.join(one.name for one in PROVIDERS)}.",
        )

    def _state(self, key: KeyStatus) -> str:
        if key.cooldown:
            reason = _REST_REASONS.get(key.reason, key.reason)
            return f"paused for {_duration(key.cooldown)} ({reason})"
        if key.kind == OAUTH and key.expires is not None:
            left = key.expires - self._clock.now().timestamp()
            return f"valid for {_duration(left)}" if left > 0 else "expired; will be renewed"
        return "ready"


def _json_key(name: str, key: KeyStatus) -> dict[str, object]:
    return {
        "provider": name,
        "id": key.id,
        "label": key.label,
        "key": masked_key(key.key),
        "from": key.source,
        "type": key.kind,
        "rests_seconds": math.ceil(key.cooldown),
        "rests_because": key.reason,
    }


def _status_line(one: dict[str, object]) -> str:
    if not one["keys"]:
        return f"{one['provider']}: no key. Add one: hermes auth add {one['provider']}"
    label = f" {single_line(str(one['label']))}" if one["label"] else ""
    return (
        f"{one['provider']}: uses{label} {one['key']} from {one['from']}: {one['why']} "
        f"({plural(int(str(one['keys'])), 'key')})"
    )


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{math.ceil(seconds)} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{math.ceil(minutes / 60)} h"
