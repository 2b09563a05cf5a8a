"""When a running gateway is compatible: environment, settings and version."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from hermes import __version__
from hermes.app.build import App, AppOptions, open_app
from hermes.config.env import Env
from hermes.config.home import resolve_home
from hermes.ipc.client import ConversationOptions
from hermes.ipc.compatibility import Compatibility
from hermes.ipc.protocol import Hello, env_fingerprint

CONFIG = """
agent:
  system_prompt: Speak like ${FAVOURITE}.
terminal:
  env_passthrough: [MY_TOOL]
custom_providers:
  - {name: mine, base_url: "http://127.0.0.1:1/v1", key_env: MY_LOGIN}
"""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").write_text(CONFIG)
    return {"HERMES_HOME": str(home), "PATH": "/bin", "LANG": "C", "FAVOURITE": "a cat"}


@pytest.fixture
async def app(env: dict[str, str]) -> AsyncIterator[App]:
    async with open_app(resolve_home(env), Env(env), AppOptions(workspace="/")) as opened:
        yield opened


def hello(env: dict[str, str]) -> Hello:
    return Hello(
        version=__version__, marks=env_fingerprint(env), start=ConversationOptions(cwd="/")
    )


@pytest.mark.parametrize(
    "name",
    [
        "PATH", "LANG", "LC_ALL", "HOME", "TZ", "https_proxy", "HTTPS_PROXY", "OPENAI_API_KEY",
        "OPENAI_API_KEY_2", "HERMES_NEW", "TERMINAL_CWD", "SSH_AUTH_SOCK", "XDG_CONFIG_HOME",
        "XDG_DATA_DIRS", "FAVOURITE", "MY_TOOL", "MY_LOGIN", "OTHER_TOKEN",
    ],
)  # fmt: skip
async def test_relevant_variable_makes_a_difference(
    app: App, env: dict[str, str], name: str
) -> None:
    compatibility = Compatibility(app, env_fingerprint(env))
    assert compatibility.difference(hello(env)) == ""
    assert name in compatibility.difference(hello(env | {name: "another"}))
    without = Compatibility(app, env_fingerprint(env | {name: "here only"}))
    assert name in without.difference(hello({one: env[one] for one in env if one != name}))


@pytest.mark.parametrize(
    "name",
    [
        "HERMES_HOME", "TERM", "COLORTERM", "PWD", "SHLVL", "_", "XDG_SESSION_ID", "DISPLAY",
        "XDG_RUNTIME_DIR", "HERMES_SESSION_ID", "WHATEVER",
    ],
)  # fmt: skip
async def test_irrelevant_variable_is_ignored(app: App, env: dict[str, str], name: str) -> None:
    assert Compatibility(app, env_fingerprint(env)).difference(hello(env | {name: "another"})) == ""


async def test_other_version_or_protocol_is_different(app: App, env: dict[str, str]) -> None:
    compatibility = Compatibility(app, env_fingerprint(env))
    assert __version__ in compatibility.difference(structs.replace(hello(env), version="9.9"))
    assert compatibility.difference(structs.replace(hello(env), protocol=99))


@pytest.mark.parametrize("name", ["config.yaml", ".env", "auth.json"])
async def test_changed_settings_are_different(app: App, env: dict[str, str], name: str) -> None:
    compatibility = Compatibility(app, env_fingerprint(env))
    file = app.home.path / name
    file.touch()
    assert compatibility.difference(hello(env)) == ""
    file.write_text("# changed\n")
    assert "settings have changed" in compatibility.difference(hello(env))


@given(st.text(), st.text())
def test_fingerprint_hides_values(value: str, other: str) -> None:
    value, other = (
        one.encode("utf-8", "replace").decode("utf-8", "replace") for one in (value, other)
    )
    digest = env_fingerprint({"NAME": value})["NAME"]
    assert (digest == env_fingerprint({"NAME": other})["NAME"]) == (value == other)
    assert len(digest) == 24


def test_undecodable_names_and_values_have_a_fingerprint() -> None:
    fingerprint = env_fingerprint({"N\udcff": "v\udcfe"})
    assert list(fingerprint) == ["N\\udcff"]
