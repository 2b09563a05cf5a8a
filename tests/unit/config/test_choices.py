"""Settings with a few known words: unknown words are reported and leave the default in force."""

import json
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct, structs

from hermes.app.setting_problems import (
    API_MODE_NAMES,
    BACKEND_NAMES,
    PROVIDER_NAMES,
)
from hermes.config.loader import config_from_mapping, inspect_config
from hermes.config.schema import Config
from hermes.config.setting_warnings import CHOICES, SWITCHES, unused_names
from hermes.kit.errors import ConfigError
from support.cases import cases

FILE = Path("config.yaml")

FREE_TEXT = (
    "agent.environment_hint", "agent.system_prompt", "auxiliary.*.base_url", "auxiliary.*.api_key",
    "auxiliary.*.model", "auxiliary.*.language", "compression.summary_model",
    "compression.summary_base_url", "delegation.model", "gateway.proxy_url", "model",
    "kanban.default_assignee", "kanban.orchestrator_profile", "cron.heartbeat", "cron.model",
    "prefill_messages_file", "streaming.cursor", "terminal.cwd", "terminal.docker_image",
    "terminal.ssh_host", "terminal.ssh_user", "terminal.ssh_key", "timezone", "display.skin",
    "dashboard.basic_auth.password_hash", "dashboard.basic_auth.username", "dashboard.host",
    "dashboard.public_url", "dashboard.tls_cert", "dashboard.tls_key",
    "dashboard.oauth.self_hosted", "dashboard.kanban.default_tenant",
    "display.personality", "slack.proxy_url", "telegram.proxy_url", "mattermost.url",
    "mattermost.proxy_url",
    "discord.proxy_url", "matrix.proxy_url", "discord.dm_role_auth_guild",
    "stt.local", "stt.openai", "stt.groq", "stt.mistral", "stt.deepinfra", "stt.elevenlabs",
)  # fmt: skip
"""Settings in which any text is valid, or whose value is checked by a function of its own."""


def text_settings(section: Struct, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The settings that hold any text by default; the types of the others name their words."""
    kinds = typing.get_type_hints(type(section))
    for field in structs.fields(section):
        value, name = getattr(section, field.name), (*path, field.encode_name)
        if isinstance(value, str) and typing.get_origin(kinds[field.name]) is not typing.Literal:
            yield ".".join(name)
        elif isinstance(value, Struct):
            yield from text_settings(value, name)


def _is_covered(name: str) -> bool:
    names = (
        *CHOICES, *SWITCHES, *FREE_TEXT, *unused_names(), *PROVIDER_NAMES, *API_MODE_NAMES,
        *BACKEND_NAMES,
    )  # fmt: skip
    section, *rest = name.split(".")
    slot = ".".join([section, "*", *rest[1:]]) if section == "auxiliary" else name
    beginnings = tuple(f"{one}." for one in names)
    return name in names or slot in names or name.startswith(beginnings)


def test_every_text_setting_is_an_enumeration_a_name_or_free_text() -> None:
    """A new setting must say what it accepts, or an unknown value would pass in silence."""
    assert [name for name in text_settings(Config()) if not _is_covered(name)] == []


@cases("name", sorted([*CHOICES, *SWITCHES]))
def test_unknown_word_is_reported_and_the_default_stays(name: str) -> None:
    steps = name.replace("fields.*", "fields").replace("*", "vision").split(".")
    value: object = ["nonsense"] if name.endswith("fields.*") else "nonsense"
    if steps[0] == "quick_commands":
        steps[1] = "x"
    for step in reversed(steps):
        value = {step: value}
    loaded, problems = inspect_config(json.dumps(value), FILE, {})
    assert loaded is not None
    (problem,) = problems
    assert problem.message == "unknown value 'nonsense'; it is ignored"
    assert "hermes config unset" in problem.hint


def test_unknown_context_engine_leaves_compression_on() -> None:
    loaded, problems = inspect_config("context:\n  engine: lcm\n", FILE, {})
    assert loaded is not None
    assert loaded.config.context.engine == "compressor"
    assert [(one.key, one.line) for one in problems] == [("context.engine", 2)]
    assert "compressor" in problems[0].hint


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("display: {tool_progress: off}", "off"),
        ("display: {tool_progress: Verbose}", "verbose"),
        ("display: {tool_progress: true}", "on"),
    ],
)
def test_words_are_spelled_as_the_program_does(text: str, expected: str) -> None:
    loaded, problems = inspect_config(text, FILE, {})
    assert loaded is not None
    assert (loaded.config.display.tool_progress, problems) == (expected, [])


@pytest.mark.parametrize(("word", "network"), [("false", False), ("off", False), ("yes", True)])
def test_switch_from_a_variable_is_a_switch(word: str, network: bool) -> None:
    """A container must not get network access because `false` is a word."""
    loaded, _ = inspect_config("", FILE, {"TERMINAL_DOCKER_NETWORK": word})
    assert loaded is not None
    assert loaded.config.terminal.docker_network is network


def test_settings_of_a_library_caller_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"context\.engine: unknown value 'lcm'"):
        config_from_mapping({"context": {"engine": "lcm"}})
