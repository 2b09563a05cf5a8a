"""Names that mean nothing here: the same problems for the loader, `config check` and `doctor`."""

from io import StringIO
from pathlib import Path

import pytest

from hermes.app.setting_problems import setting_problems
from hermes.cli.context import CliContext
from hermes.cli.verbs.config.lint import check_settings
from hermes.cli.verbs.doctor.home import read_settings
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.loader import load_config
from hermes.kit.clock import SystemClock
from hermes.schema.errors import ToolError
from support.app_profile import call_tool, make_scope, open_profile

ENV = Env({})

UNKNOWN = {
    "context.engine": "context:\n  engine: lcm\n",
    "toolsets[0]": "toolsets: [termnal]\n",
    "agent.disabled_toolsets[0]": "agent: {disabled_toolsets: [termnal]}\n",
    "delegation.default_toolsets[0]": "delegation: {default_toolsets: [fil]}\n",
    "platform_toolsets.telegrm": "platform_toolsets: {telegrm: [file]}\n",
    "terminal.backend": "terminal: {backend: modal}\n",
    "terminal.backend_by_platform.telegram": "terminal: {backend_by_platform: {telegram: dokr}}\n",
    "terminal.backend_by_platform.telegrm": "terminal: {backend_by_platform: {telegrm: docker}}\n",
    "model.provider": "model: {provider: opnai}\n",
    "model.api_mode": "model: {api_mode: chat}\n",
    "auxiliary.compression.provider": "auxiliary: {compression: {provider: opnai}}\n",
    "delegation.provider": "delegation: {provider: opnai}\n",
    "fallback_providers[0].provider": "fallback_providers: [{provider: opnai, model: m}]\n",
    "platforms.api_server.extra.model_routes": (
        "platforms: {api_server: {extra: {model_routes: {fast: {provider: openai}}}}}\n"
    ),
    "platforms.api_server.extra.model_routes.fast.provider": (
        "platforms: {api_server: {extra: {model_routes: {fast: {model: m, provider: opnai}}}}}\n"
    ),
    "mcp_servers.a__b": "mcp_servers: {a__b: {command: true}}\n",
    "mcp_servers.x": "mcp_servers: {x: {url: 'http://h', transport: carrier}}\n",
    "hooks.pre_tool": "hooks: {pre_tool: [{command: 'true'}]}\n",
    "display.personality": "display: {personality: pirat}\n",
    "gateway.served_profiles[0]": "gateway: {served_profiles: [wrok]}\n",
    "reset_by_type.dmm": "reset_by_type: {dmm: {mode: idle}}\n",
    "credential_pool_strategies.opnai": "credential_pool_strategies: {opnai: random}\n",
    "timezone": "timezone: Mars/Base\n",
}


def home_with(tmp_path: Path, text: str) -> Home:
    (tmp_path / "config.yaml").write_text(text)
    return Home(tmp_path, tmp_path)


@pytest.mark.parametrize("key", UNKNOWN)
def test_loader_and_check_report_the_same_unknown_name(tmp_path: Path, key: str) -> None:
    home = home_with(tmp_path, UNKNOWN[key])
    (problem,) = setting_problems(load_config(home, ENV), home, ENV)
    assert problem.key == key
    assert problem.line
    assert problem.hint
    assert problem in check_settings(home, ENV)


KNOWN = [
    "toolsets: [all]\n",
    "toolsets: ['*', hermes-telegram, no_mcp]\n",
    "platform_toolsets: {telegram: [hermes-telegram], cli: [file]}\n",
    "terminal: {backend: docker, backend_by_platform: {telegram: local}}\n",
    "auxiliary: {vision: {provider: auto}, compression: {provider: OpenAI}}\n",
    "display: {personality: none, skin: dark}\ntimezone: Europe/Berlin\n",
    "platforms: {api_server: {extra: {model_routes: {fast: {model: m, provider: openai}}}}}\n",
]


@pytest.mark.parametrize("text", KNOWN)
def test_known_names_pass(tmp_path: Path, text: str) -> None:
    home = home_with(tmp_path, text)
    assert setting_problems(load_config(home, ENV), home, ENV) == []


def test_backend_from_a_variable_is_checked(tmp_path: Path) -> None:
    home, env = home_with(tmp_path, ""), Env({"TERMINAL_ENV": "modal"})
    (problem,) = setting_problems(load_config(home, env), home, env)
    assert "'modal' is not supported, so commands and code are refused" in problem.message


def test_bots_from_a_variable_are_checked(tmp_path: Path) -> None:
    for word, expected in (("mention", ["TELEGRAM_ALLOW_BOTS"]), ("mentions", []), ("true", [])):
        home, env = home_with(tmp_path, ""), Env({"TELEGRAM_ALLOW_BOTS": word})
        found = setting_problems(load_config(home, env), home, env)
        assert [one.key for one in found] == expected


def test_ports_of_platforms_are_checked(tmp_path: Path) -> None:
    name = "platforms.api_server.extra.port"
    for port, expected in (("99999", [name]), ("x", [name]), ("8642", []), ("'${PORT}'", [])):
        home = home_with(tmp_path, f"platforms: {{api_server: {{extra: {{port: {port}}}}}}}\n")
        env = Env({"PORT": "1", "API_SERVER_PORT": "80"})
        found = setting_problems(load_config(home, env), home, env)
        assert [one.key for one in found] == expected
    env = Env({"API_SERVER_PORT": "99999"})
    home = home_with(tmp_path, "")
    (problem,) = setting_problems(load_config(home, env), home, env)
    assert problem.message.startswith("99999 is not a port")


REPORTED_BY_OTHER_CHECKS = {
    "terminal.backend", "model.provider", "mcp_servers.a__b", "mcp_servers.x", "hooks.pre_tool",
}  # fmt: skip


@pytest.mark.parametrize("key", sorted({*UNKNOWN} - REPORTED_BY_OTHER_CHECKS))
def test_doctor_reports_it_too(tmp_path: Path, key: str) -> None:
    home = home_with(tmp_path, UNKNOWN[key])
    context = CliContext(ENV, None, (StringIO(), StringIO(), StringIO()))
    _, findings = read_settings(context, home, SystemClock())
    assert [key in one.says for one in findings] == [True]


async def test_all_means_all_tools(tmp_path: Path) -> None:
    async with open_profile(tmp_path, "toolsets: [all]\n") as app:
        assert {"terminal", "read_file", "execute_code"} <= {*app.toolbox.tools_on("cli")}
        assert app.warnings == []


async def test_unsupported_backend_refuses_shell_and_code(tmp_path: Path) -> None:
    async with open_profile(tmp_path, "terminal:\n  backend: modal\n") as app:
        scope = make_scope(tmp_path)
        for tool, args in (
            ("terminal", {"command": "touch ran"}),
            ("execute_code", {"code": "open('ran', 'w')"}),
        ):
            with pytest.raises(ToolError, match=r"'modal' is not supported.*cannot run"):
                await call_tool(app, scope, tool, **args)
        (warning,) = app.warnings
    assert "commands and code are refused" in warning
    assert "hermes config set terminal.backend auto" in warning
    assert not (tmp_path / "work" / "ran").exists()
