"""What codex gets from a profile, and what it does not."""

from pathlib import Path

from hermes.config.home import Home
from hermes.config.schema import Config
from hermes.config.sections.execution import McpServer
from hermes.config.sections.models import Compression
from hermes.runtimes.codex.settings import (
    NEVER_COMPACT,
    codex_env,
    codex_mcp_settings,
    codex_program,
    compaction_share,
    thread_config,
)
from hermes.runtimes.codex.threads import permissions_config
from hermes.sandbox.workspace_policy import blocked_paths, git_executed_paths


def test_secrets_are_not_passed_to_codex() -> None:
    env = {
        "PATH": "/bin",
        "HOME": "/home/ann",
        "LC_ALL": "C",
        "OPENAI_API_KEY": "sk-1",
        "TELEGRAM_BOT_TOKEN": "t",
        "ANTHROPIC_API_KEY": "a",
        "HERMES_HOME": "/home/ann/.hermes",
    }
    assert set(codex_env(env)) == {"PATH", "HOME", "LC_ALL", "OPENAI_API_KEY"}


def test_named_program_is_used(tmp_path: Path) -> None:
    assert codex_program({"CODEX_PATH": " /opt/codex "}) == "/opt/codex"
    assert codex_program({"PATH": str(tmp_path)}) == "codex"


def test_mcp_servers_are_converted_to_codex_config() -> None:
    config = codex_mcp_settings(
        {
            "files": McpServer(command="serve", args=("-x",), env={"A": "b"}, timeout=7),
            "web": McpServer(url="https://example.org/mcp", headers={"X": "y"}),
            "off": McpServer(command="serve", enabled=False),
        }
    )
    assert config == {
        "files": {
            "command": "serve",
            "args": ["-x"],
            "env": {"A": "b"},
            "tool_timeout_sec": 7,
            "startup_timeout_sec": 60,
        },
        "web": {
            "url": "https://example.org/mcp",
            "http_headers": {"X": "y"},
            "tool_timeout_sec": 300,
            "startup_timeout_sec": 60,
        },
    }


def write_home(path: Path) -> tuple[Home, dict[str, str]]:
    user = path / "ann"
    for name in (".hermes/profiles/work", ".ssh", "project"):
        (user / name).mkdir(parents=True)
    (user / ".hermes" / ".env").touch()
    root = user / ".hermes"
    return Home(root=root, path=root / "profiles" / "work"), {"HOME": str(user)}


def test_home_and_keys_are_closed(tmp_path: Path) -> None:
    home, env = write_home(tmp_path)
    user = tmp_path / "ann"
    expected = [str(user / ".hermes"), str(user / ".ssh")]
    assert blocked_paths(home, env, str(user / "project")) == expected
    assert blocked_paths(home, env, str(user)) == expected


def test_workspace_within_the_home_stays_open(tmp_path: Path) -> None:
    home, env = write_home(tmp_path)
    (home.path / "desk").mkdir()
    (home.path / "config.yaml").touch()
    closed = blocked_paths(home, env, str(home.path / "desk"))
    assert str(home.path / "config.yaml") in closed
    assert str(home.root / ".env") in closed
    assert not any((home.path / "desk").is_relative_to(path) for path in closed)


def test_closed_paths_cannot_be_read() -> None:
    config = permissions_config(["/secret"])
    assert config == {
        "default_permissions": "hermes",
        "permissions": {"hermes": {"extends": ":workspace", "filesystem": {"/secret": "deny"}}},
    }


def test_files_executed_by_git_are_read_only(tmp_path: Path) -> None:
    _home, env = write_home(tmp_path)
    work = tmp_path / "ann/project"
    for name in ("one/.git/objects", "two/.git/objects", "two/.githooks"):
        (work / name).mkdir(parents=True)
    (tmp_path / "ann/.gitconfig").write_text("[core]\n\thooksPath = .githooks\n")
    found = git_executed_paths(env, str(work))
    gits = (f"{work}/{name}/.git" for name in ("one", "two"))
    kept = [f"{git}/{name}" for git in gits for name in ("config", "hooks")]
    assert found == sorted([*kept, f"{work}/two/.githooks"])
    filesystem = {f"{work}/two/.githooks": "read", "/secret": "deny"}
    config = permissions_config(["/secret"], [f"{work}/two/.githooks"])
    own = {"extends": ":workspace", "filesystem": filesystem}
    assert config == {"default_permissions": "hermes", "permissions": {"hermes": own}}


def test_compaction_threshold_is_a_setting() -> None:
    for chosen, share, expected in (
        ("native", 0.0, {}),
        ("hermes", 0.5, {}),
        ("off", 0.0, {"model_auto_compact_token_limit": NEVER_COMPACT}),
    ):
        config = Config(compression=Compression(codex_app_server_auto=chosen))
        assert compaction_share(config.compression) == share
        assert thread_config(config) == expected
