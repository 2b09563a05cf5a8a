"""`hermes status`: an overview of a profile."""

from argparse import Namespace
from collections.abc import Sequence

import anyio
from msgspec import Struct

from hermes.api.settings import PLATFORM_NAME as API
from hermes.api.settings import is_enabled
from hermes.app.channels import enabled_platforms
from hermes.app.followup_router import left_followups
from hermes.app.model_settings import model_settings
from hermes.app.models import NO_MODEL, ModelSelector
from hermes.app.service.status import GatewayStatus, gateway_status
from hermes.app.storage import open_archive, open_blobs
from hermes.app.unsupported_features import unsupported_features
from hermes.cli.context import CliContext
from hermes.cli.dates import relative_time
from hermes.cli.output import Printer
from hermes.config.env import Env, profile_env
from hermes.config.home import Home
from hermes.config.loader import load_config
from hermes.config.schema import Config
from hermes.config.variables import proxy_url
from hermes.kit.clock import Clock, SystemClock
from hermes.kit.terminal_text import single_line
from hermes.kit.text import plural
from hermes.learning.ledger import Ledger
from hermes.models.auth_file import AuthFile
from hermes.models.key_pool import KeyPool
from hermes.models.resolver import NoModelChosen, NoProviderConfigured, resolve_models
from hermes.models.settings import ModelOverrides
from hermes.models.urls import redacted_url
from hermes.runtimes.codex.settings import codex_is_installed, codex_program, codex_runs_turns
from hermes.sandbox.sandboxes import SandboxDeps, Sandboxes
from hermes.sandbox.spawner import Spawner
from hermes.schema.errors import ConfigError, StoreError

_SETTINGS_UNREADABLE = "the settings cannot be read: hermes doctor"
_MAX_NAMED = 3
_STOPPED, _DIED = "not running", "crashed or killed"


class PendingWork(Struct, frozen=True, kw_only=True):
    """Counts of open questions, running tasks and undelivered messages."""

    questions: int = 0
    processes: int = 0
    delegations: int = 0
    proposals: int = 0
    reports: Sequence[str] = ()  # the sessions with reports of finished work
    messages: int = 0
    given_up: int = 0


_NO_COUNTS = (0, 0, PendingWork())


class Overview(Struct, frozen=True, kw_only=True):
    profile: str
    home: str
    model: str
    gateway: str
    channels: Sequence[str]
    sandbox: Sequence[str]
    unserved: Sequence[str] = ()
    sessions: int = 0
    stored_messages: int = 0
    waiting: PendingWork = PendingWork()
    trouble: str = ""
    model_trouble: str = ""


def run(args: Namespace, context: CliContext) -> int:
    overview = anyio.run(collect_overview, context.home(), context.env, SystemClock())
    if args.json:
        context.print_json(overview)
        return 0
    printer = Printer(context)
    rows = _rows(overview)
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        label = printer.style(f"{name:<{width}}", "bold")
        printer.line(f"{label}  {single_line(context.with_profile(text))}")
    return 0


async def collect_overview(home: Home, env: Env, clock: Clock) -> Overview:
    gateway = gateway_status(home)
    settings = _settings(home, env)
    model, no_model = (
        await _model(home, settings, clock) if settings else (_SETTINGS_UNREADABLE, "")
    )
    (sessions, messages, waiting), trouble = _NO_COUNTS, ""
    try:
        sessions, messages, waiting = await _store_counts(home, clock)
    except StoreError as error:
        trouble = error.sentence
    return Overview(
        profile=home.profile,
        home=str(home.path),
        model=model,
        model_trouble=no_model,
        gateway=_gateway(gateway, clock),
        channels=_channels(gateway, settings),
        sandbox=await _sandbox(gateway, settings, clock) if settings else [_SETTINGS_UNREADABLE],
        unserved=[one.name for one in unsupported_features(home, *settings)] if settings else (),
        sessions=sessions,
        stored_messages=messages,
        waiting=waiting,
        trouble=trouble,
    )


def _settings(home: Home, env: Env) -> tuple[Config, Env] | None:
    try:
        own = profile_env(home.dotenv, env)
        return load_config(home, own).config, own
    except ConfigError:
        return None


async def _model(home: Home, settings: tuple[Config, Env], clock: Clock) -> tuple[str, str]:
    """The model's name, and the error that a turn would report for a missing model or key."""
    config, env = settings
    if codex_runs_turns(config):
        program = codex_program(env)
        missing = f"codex runs the turns, but {program} was not found: hermes doctor"
        return f"codex ({program})", "" if codex_is_installed(env) else missing
    blobs = open_blobs(home)
    configured = model_settings(config, home.root)
    selector = ModelSelector(home, env, configured, blobs, clock)
    name = NO_MODEL
    try:
        name = await selector.describe_default()
        if name == NO_MODEL:
            await selector.resolve(ModelOverrides())
        else:
            resolve_models(KeyPool(AuthFile(home.auth), clock).with_keys(configured), env.get)
    except (NoProviderConfigured, NoModelChosen) as error:
        # A name without configuration comes from a local server.
        if name != NO_MODEL:
            return name, ""
        if (remote := proxy_url(config, env)) is not None:
            return f"none here; chat turns run on the gateway at {redacted_url(remote)}", ""
        return name, error.sentence
    except ConfigError as error:
        return name, error.sentence
    finally:
        await selector.aclose()
    return name, ""


def _gateway(gateway: GatewayStatus, clock: Clock) -> str:
    record, state = gateway.record, gateway.state
    if record is None:
        return _DIED if gateway.died else _STOPPED
    since = f", since {relative_time(record.started_at, clock.now())}" if record.started_at else ""
    phase = state.gateway_state if state else "state unknown"
    turns = f", {plural(state.active_agents, 'active turn')}" if state else ""
    return f"{phase} (pid {record.pid}{since}{turns})"


def _channels(gateway: GatewayStatus, settings: tuple[Config, Env] | None) -> list[str]:
    """The channels of the running gateway, or those that are configured."""
    if gateway.record is None:
        if settings is None:
            return []
        return [*([API] if is_enabled(*settings) else []), *enabled_platforms(*settings)]
    return [
        f"{name} {platform.state}{f' ({platform.error_message})' if platform.error_message else ''}"
        for name, platform in sorted(gateway.platforms.items())
    ]


async def _sandbox(gateway: GatewayStatus, settings: tuple[Config, Env], clock: Clock) -> list[str]:
    """The sandboxes reported by the running gateway, or the result of a check."""
    config, env = settings
    lines = [*gateway.sandboxes]
    if not lines:
        with Spawner() as spawner:
            parts = SandboxDeps(gateway.home, env, config.terminal, spawner, clock)
            lines = await Sandboxes(parts).check()
    return [line.removeprefix("sandbox ") for line in lines] or [
        f"terminal.backend {config.terminal.backend!r} cannot be used"
    ]


async def _store_counts(home: Home, clock: Clock) -> tuple[int, int, PendingWork]:
    if not home.has_sessions:
        return _NO_COUNTS
    async with open_archive(home, clock) as store:
        stats = await store.maintenance.stats()
        reports = await left_followups(store)
        waiting = PendingWork(
            questions=len(await store.approvals.open_questions()),
            processes=await store.processes.count_running(),
            delegations=len(await store.delegations.running()),
            proposals=len(await Ledger(store, home.path, clock).waiting()),
            reports=reports,
            messages=stats.waiting - len(reports),
            given_up=stats.parked,
        )
    return stats.sessions, stats.messages, waiting


def _rows(overview: Overview) -> list[tuple[str, str]]:
    start = ": hermes gateway start" if overview.gateway == _STOPPED else ""
    rows = [
        ("profile", f"{overview.profile}  ({overview.home})"),
        ("model", overview.model_trouble or overview.model),
        ("gateway", f"{overview.gateway}{start}"),
    ]
    inactive = (
        " (enabled; the gateway is not running)" if overview.gateway in {_STOPPED, _DIED} else ""
    )
    channels = ", ".join(overview.channels) + inactive if overview.channels else "none"
    rows.append(("channels", channels))
    rows += [("sandbox", line) for line in overview.sandbox]
    if overview.unserved:
        rows.append(("not served", f"{', '.join(overview.unserved)} (hermes doctor)"))
    if overview.trouble:
        return [
            *rows,
            ("sessions", "unknown"),
            ("waiting", "unknown"),
            ("database", overview.trouble),
        ]
    stored = (
        f"{plural(overview.sessions, 'session')}, {plural(overview.stored_messages, 'message')}"
    )
    return [*rows, ("sessions", stored), ("waiting", _pending_text(overview.waiting))]


def _pending_text(work: PendingWork) -> str:
    """The counts, with the command that shows the items."""
    parts = [
        (work.questions, "question", ""),
        (work.processes, "background process", ""),
        (work.delegations, "delegation", ""),
        (len(work.reports), "report", f" of finished work ({_resume_commands(work.reports)})"),
        (work.proposals, "proposal", " (hermes memory pending)"),
        (work.messages, "message", " in the queue"),
        (work.given_up, "message", " undeliverable (hermes send --failed)"),
    ]
    texts = [f"{plural(count, noun)}{more}" for count, noun, more in parts if count]
    return ", ".join(texts) or "nothing"


def _resume_commands(sessions: Sequence[str]) -> str:
    """The commands that show the oldest reports."""
    commands = [f"hermes -r {session}" for session in dict.fromkeys(sessions)]
    return ", ".join(commands[:_MAX_NAMED])
