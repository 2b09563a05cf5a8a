"""What `hermes auth` does: add, list, remove, reset keys; tell which would be used."""

import math
from argparse import Namespace
from collections.abc import Sequence

import msgspec

from hermes.app.model_settings import model_settings
from hermes.cli.context import CliContext
from hermes.config.dotenv import profile_env
from hermes.config.env import Env
from hermes.config.home import ensure_home
from hermes.config.loader import load_config
from hermes.kit.clock import Clock
from hermes.kit.terminal_text import single_line
from hermes.kit.text import did_you_mean, plural
from hermes.models.auth_file import OAUTH, AuthFile, Credential
from hermes.models.key_ring import KeyStrategy
from hermes.models.key_sources import configured_keys
from hermes.models.key_status import KeyStatus, key_statuses, next_key
from hermes.models.providers import CUSTOM, PROVIDERS, find_provider
from hermes.models.selection import configured_provider
from hermes.models.settings import ModelSettings
from hermes.models.urls import normalize_url
from hermes.schema.errors import UsageError

_REST_REASONS = {
    "auth": "refused",
    "billing": "no credit",
    "rate_limit": "rate limited",
}


def perform(args: Namespace, context: CliContext, clock: Clock) -> int:
    desk = _AuthActions(context, clock)
    match args.action:
        case "add":
            return desk.add(args.provider, args.key, args.label, oauth=args.oauth)
        case "remove":
            return desk.remove(args.provider, args.which)
        case "reset":
            return desk.reset(args.provider)
        case "status":
            return desk.status(args.provider, as_json=args.json)
        case _:
            return desk.list(args.provider, as_json=args.json)


def masked_key(key: str) -> str:
    """Enough to know it again, too little to use it."""
    return f"{key[:4]}…{key[-4:]}" if len(key) >= 16 else "…" * bool(key)


class _AuthActions:
    def __init__(self, context: CliContext, clock: Clock) -> None:
        self._context = context
        self._clock = clock
        home = context.home()
        self._file = AuthFile(home.auth)
        self._env: Env = profile_env(home.dotenv, context.env)
        self._settings: ModelSettings = model_settings(load_config(home, self._env).config)

    def add(self, provider: str, key: str | None, label: str, *, oauth: bool) -> int:
        name = self._named(provider)
        address = self._custom_address() if name == CUSTOM.name else None
        ensure_home(self._context.home())
        if oauth:
            return self._log_in(name, label)
        key = key or self._asked(name)
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise UsageError(
                "The key holds a character that no key has.",
                hint="A line break or blank may have been copied along: copy it again.",
            )
        credential = Credential(access_token=key, label=label, base_url=address)
        made = self._file.add(name, credential, self._clock.now())
        count = len(self._held(name))
        self._say(
            f"{name} has {plural(count, 'key')}; the new one is {single_line(made.label)} "
            f"({masked_key(made.access_token)})"
        )
        return 0

    def _custom_address(self) -> str:
        """The one custom address that is set now: the key is sent to no other."""
        settings = self._settings
        own = settings.base_url if configured_provider(settings) == CUSTOM.name else ""
        url = own or self._env.get("OPENAI_BASE_URL", "").strip()
        if not url:
            raise UsageError(
                "Which server the key is for is not known.",
                hint="Set its address first: hermes setup --base-url URL --key-stdin",
            )
        return normalize_url(url)

    def _asked(self, name: str) -> str:
        stdin = self._context.stdin
        if not stdin.isatty():
            key = stdin.readline().strip()
        else:
            from getpass import getpass

            key = getpass(f"Key for {name}: ", stream=self._context.stderr).strip()
        if not key:
            raise UsageError(
                "No key was given.", hint=f"Give it as a word: hermes auth add {name} KEY"
            )
        return key

    def _log_in(self, name: str, label: str) -> int:
        login = self._settings.logins.get(name)
        if login is None:
            raise UsageError(
                f"How to log in at {name} is not known.",
                hint=f"Add a key instead (hermes auth add {name}), or set device_url, token_url "
                f"and client_id under providers.{name}.oauth in config.yaml: hermes config edit",
            )
        import anyio

        from hermes.models.oauth import OAuthClient

        broker = OAuthClient(self._file, self._clock)

        async def logged_in() -> Credential:
            asked = await broker.begin(login)
            page = asked.verification_uri_complete or asked.verification_uri
            self._context.stderr.write(
                f"Open {single_line(page)}\nand type the code {single_line(asked.user_code)}\n"
            )
            self._context.stderr.flush()
            return await broker.keep(name, await broker.wait(login, asked), label)

        made = anyio.run(logged_in)
        self._say(f"Logged in at {name} as {single_line(made.label)}")
        return 0

    def remove(self, provider: str, which: str) -> int:
        name = self._named(provider)
        gone = self._file.remove(name, which, self._clock.now())
        self._say(f"{single_line(gone.label or gone.id)} of {name} is forgotten")
        told = configured_keys(self._settings, self._env.get, name)
        if any(key == gone.access_token for key, _ in told):
            source = next(where for key, where in told if key == gone.access_token)
            self._context.stderr.write(
                f"hermes: the same key is in {source} as well, and is still used from there\n"
            )
        return 0

    def reset(self, provider: str) -> int:
        name = self._named(provider)
        woken = self._file.wake(name, self._clock.now())
        self._say(f"{plural(woken, 'key')} of {name} woken")
        return 0

    def list(self, provider: str | None, *, as_json: bool) -> int:
        names = [self._named(provider)] if provider else self._all()
        rows = [(name, one) for name in names for one in self._held(name)]
        if as_json:
            return self._print([_json_key(name, one) for name, one in rows])
        if not rows:
            self._context.stderr.write(
                "There are no keys yet. Add one with: hermes auth add PROVIDER\n"
            )
            return 0
        from hermes.cli.output import Printer

        head = ("PROVIDER", "#", "ID", "LABEL", "KEY", "FROM", "STATE")
        numbers = {name: self._numbers(name) for name in names}
        table = [
            (
                name,
                numbers[name].get(one.id, ""),
                one.id,
                single_line(one.label),
                masked_key(one.key),
                one.source,
                self._state(one),
            )
            for name, one in rows
        ]
        Printer(self._context).table([head, *table])
        return 0

    def status(self, provider: str | None, *, as_json: bool) -> int:
        names = [self._named(provider)] if provider else self._all()
        told: list[dict[str, object]] = []
        for name in names:
            held = self._held(name)
            strategy = self._settings.strategies.get(name, KeyStrategy.FILL_FIRST)
            verdict = next_key(held, strategy)
            if verdict is None:
                told.append({"provider": name, "keys": 0})
                continue
            chosen = _json_key(name, held[verdict.place])
            told.append(chosen | {"keys": len(held), "strategy": strategy, "why": verdict.why})
        if as_json:
            return self._print(told)
        if not told:
            self._context.stderr.write(
                "There are no keys yet. Add one with: hermes auth add PROVIDER\n"
            )
        for one in told:
            self._say(_status_line(one))
        return 0

    def _print(self, document: object) -> int:
        self._say(msgspec.json.encode(document).decode())
        return 0

    def _say(self, text: str) -> None:
        self._context.stdout.write(f"{text}\n")

    def _held(self, name: str) -> Sequence[KeyStatus]:
        return key_statuses(
            configured_keys(self._settings, self._env.get, name),
            self._file.credentials(name),
            self._file.rests(name),
            self._clock.now().timestamp(),
        )

    def _numbers(self, name: str) -> dict[str, str]:
        known = self._file.credentials(name)
        return {one.id: str(number) for number, one in enumerate(known, 1)}

    def _all(self) -> Sequence[str]:
        names = [one.name for one in PROVIDERS]
        names += [one.name for one in self._settings.custom_providers]
        names += self._file.providers()
        return [name for name in dict.fromkeys(names) if self._held(name)]

    def _named(self, provider: str) -> str:
        customs = {one.name.lower(): one.name for one in self._settings.custom_providers}
        if custom := customs.get(provider.lower().removeprefix("custom:")):
            return custom
        known = find_provider(provider)
        if known is not None:
            return known.name
        if provider in {*self._file.providers(), *self._settings.logins}:
            return provider
        near = did_you_mean(provider, [*(one.name for one in PROVIDERS), *customs.values()])
        raise UsageError(
            f"There is no provider {provider!r}.",
            hint=near or "`hermes model` and docs/models.md name them.",
        )

    def _state(self, one: KeyStatus) -> str:
        if one.rests:
            return f"rests {_duration(one.rests)} ({_REST_REASONS.get(one.why, one.why)})"
        if one.kind == OAUTH and one.expires is not None:
            left = one.expires - self._clock.now().timestamp()
            return f"good for {_duration(left)}" if left > 0 else "to be renewed"
        return "ready"


def _json_key(name: str, one: KeyStatus) -> dict[str, object]:
    return {
        "provider": name,
        "id": one.id,
        "label": one.label,
        "key": masked_key(one.key),
        "from": one.source,
        "type": one.kind,
        "rests_seconds": math.ceil(one.rests),
        "rests_because": one.why,
    }


def _status_line(one: dict[str, object]) -> str:
    if not one["keys"]:
        return f"{one['provider']}: no key. Add one with: hermes auth add {one['provider']}"
    label = f" {single_line(str(one['label']))}" if one["label"] else ""
    return (
        f"{one['provider']}: uses{label} {one['key']} from {one['from']}, as {one['why']} "
        f"({plural(int(str(one['keys'])), 'key')})"
    )


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{math.ceil(seconds)} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{math.ceil(minutes / 60)} h"
