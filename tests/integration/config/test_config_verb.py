import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest
import yaml

from support.preloaded_python import run_python_text

FULL = Path(__file__).parents[2] / "unit" / "config" / "data" / "full.yaml"


class Shell:
    """Runs `hermes` as a process in a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = {"HERMES_HOME": str(home), "HOME": str(home.parent), "PATH": os.environ["PATH"]}

    def __call__(self, *words: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess:
        return run_python_text(
            ["-m", "hermes", *words], stdin=stdin, env={**self.env, **env}, timeout=60
        )

    def spawn(self, *words: str, **env: str) -> pexpect.spawn:
        return pexpect.spawn(
            sys.executable,
            ["-m", "hermes", *words],
            env={**self.env, "TERM": "dumb", **env},
            encoding="utf-8",
            timeout=60,
        )


@pytest.fixture
def hermes(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "home")


def test_reading_needs_no_home_and_makes_none(hermes):
    assert hermes("config", "path").stdout == f"{hermes.home}/config.yaml\n"
    assert hermes("config", "env-path").stdout == f"{hermes.home}/.env\n"
    assert hermes("config", "get", "agent.max_turns").stdout == "90\n"
    checked = hermes("config", "check")
    assert (checked.returncode, "all settings have their defaults" in checked.stdout) == (0, True)
    assert not hermes.home.exists()


def test_set_get_unset(hermes):
    assert hermes("config", "set", "agent.max_turns", "12").returncode == 0
    assert hermes("config", "get", "agent.max_turns").stdout == "12\n"
    assert hermes("config", "unset", "agent.max_turns").returncode == 0
    assert hermes("config", "get", "agent.max_turns").stdout == "90\n"


def test_a_value_prints_raw_and_a_section_as_yaml_or_json(hermes):
    hermes.home.mkdir()
    (hermes.home / "config.yaml").write_text("model: 'a b'\ntoolsets: [x, y]\n")
    assert hermes("config", "get", "model").stdout == "a b\n"
    assert hermes("config", "get", "model.default").stdout == "a b\n"
    assert hermes("config", "get", "toolsets").stdout == "- x\n- y\n"
    assert json.loads(hermes("config", "get", "toolsets", "--json").stdout) == ["x", "y"]
    assert hermes("config", "get", "toolsets[1]").stdout == "y\n"


@pytest.mark.parametrize(
    ("key", "message", "hint"),
    [
        ("agent.max_turn", "Unknown setting: agent.max_turn", "agent.max_turns?"),
        ("max_live_session", "Unknown setting: max_live_session", "max_live_sessions?"),
        ("max_concurrent_sessions", "max_concurrent_sessions is not set", "hermes config set"),
        ("OPENAI_API_KEY", "Unknown setting: OPENAI_API_KEY", ""),
    ],
)
def test_missing_setting_is_an_error_with_hint(hermes, key, message, hint):
    done = hermes("config", "get", key)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr
    assert hint in done.stderr


def test_secrets_go_to_the_env_file_and_are_never_shown(hermes):
    secret = "sk-live-canary-0123456789"
    done = hermes("config", "set", "OPENAI_API_KEY", secret)
    assert secret not in done.stdout + done.stderr
    piped = hermes("config", "set", "ANTHROPIC_API_KEY", stdin="piped-canary-42\n")
    assert piped.returncode == 0
    hermes("config", "set", "model.base_url", f"http://host/{secret}")
    hermes("config", "set", "model.api_key", "${ANTHROPIC_API_KEY}")
    dotenv = hermes.home / ".env"
    assert dotenv.read_text() == f"OPENAI_API_KEY={secret}\nANTHROPIC_API_KEY=piped-canary-42\n"
    assert stat.S_IMODE(dotenv.stat().st_mode) == 0o600
    for words in (["config", "show"], ["config", "show", "model"], ["config", "show", "--json"]):
        shown = hermes(*words).stdout
        assert secret not in shown
        assert "piped-canary-42" not in shown
        assert "[redacted]" in shown
    assert hermes("config", "get", "model.api_key").stdout == "piped-canary-42\n"
    assert hermes("config", "get", "OPENAI_API_KEY").stdout == f"{secret}\n"
    assert hermes("config", "unset", "OPENAI_API_KEY").returncode == 0
    assert "OPENAI" not in dotenv.read_text()


def test_a_secret_is_asked_for_without_echo(hermes):
    child = hermes.spawn("config", "set", "OPENAI_API_KEY")
    child.expect("OPENAI_API_KEY: ")
    child.sendline("typed-canary")
    child.expect("set in")
    child.expect(pexpect.EOF)
    assert "typed-canary" not in child.before
    assert (hermes.home / ".env").read_text() == "OPENAI_API_KEY=typed-canary\n"


def test_show_prints_everything_in_effect(hermes):
    hermes.home.mkdir()
    (hermes.home / "config.yaml").write_text("agent: {max_turns: 3}\nplugin_of_mine: {a: 1}\n")
    shown = yaml.safe_load(hermes("config", "show", "--all").stdout)
    assert shown["agent"]["max_turns"] == 3
    assert shown["agent"]["api_max_retries"] == 3
    assert shown["plugin_of_mine"] == {"a": 1}
    section = yaml.safe_load(hermes("config", "show", "agent").stdout)
    assert section == {"agent": shown["agent"]}
    assert hermes("config", "show", "agnet").returncode == 1


def test_show_prints_changed_settings_and_how_to_see_the_rest(hermes):
    plain = hermes("config", "show").stdout
    assert plain == "# All settings have their defaults. To see them: hermes config show --all\n"
    hermes.home.mkdir()
    text = "model: x\nagent: {max_turns: 3, api_max_retries: 3}\nplugin_of_mine: {a: 1}\n"
    (hermes.home / "config.yaml").write_text(text)
    shown = hermes("config", "show").stdout
    differs = {"model": "x", "agent": {"max_turns": 3}, "plugin_of_mine": {"a": 1}}
    assert yaml.safe_load(shown) == differs
    assert shown.startswith("# Other settings have their defaults. To see them: ")
    assert json.loads(hermes("config", "show", "--json").stdout) == differs


def test_an_unknown_setting_is_only_set_by_force(hermes):
    done = hermes("config", "set", "agent.max_turn", "3")
    assert done.returncode == 2
    assert "did you mean agent.max_turns?" in done.stderr
    assert "--force" in done.stderr
    assert not (hermes.home / "config.yaml").exists()
    forced = hermes("config", "set", "--force", "agent.max_turn", "3")
    assert forced.returncode == 0
    assert "warning" in forced.stderr


def test_check_lists_warnings_with_zero_and_errors_with_78(hermes):
    hermes.home.mkdir()
    config = hermes.home / "config.yaml"
    config.write_text(FULL.read_text())
    (*unknown, warning, advice) = hermes("config", "check").stdout.splitlines()
    assert [line.partition("unknown ")[2] for line in unknown[:4:2]] == [
        "toolset 'web', which adds no tools",
        "profile 'work'",
    ]
    assert "mcp_servers.remote: The MCP server 'remote' cannot be used" in unknown[4]
    assert "settings have no effect: " in warning
    count = int(warning.partition(" settings")[0].rpartition(" ")[2])
    verbose = hermes(*advice.partition("hermes ")[2].split()).stdout
    assert verbose.count("not used in this version") == count
    config.write_text("modle: x\n")
    done = hermes("config", "check")
    assert done.returncode == 0
    assert done.stdout.startswith(f"warning: {config}, line 1, column 1: modle: unknown setting")
    config.write_text("agent: {max_turns: x}\nmodle: x\n")
    done = hermes("config", "check")
    assert done.returncode == 78
    assert "error: " in done.stdout
    assert "agent.max_turns: expected a whole number" in done.stdout
    (hermes.home / ".env").write_text("no sign\n")
    expected = f"error: {hermes.home}/.env: line 1: expected NAME=value, but there is no =\n"
    assert hermes("config", "check").stdout.startswith(expected)


def test_check_warns_of_keys_that_others_can_read(hermes):
    hermes("config", "set", "OPENAI_API_KEY", "x" * 20)
    assert "others" not in hermes("config", "check").stdout
    (hermes.home / ".env").chmod(0o644)
    done = hermes("config", "check")
    assert (done.returncode, "other users" in done.stdout) == (0, True)


def test_invalid_file_is_one_sentence(hermes):
    hermes.home.mkdir()
    (hermes.home / "config.yaml").write_text("a: b: c\n")
    done = hermes("config", "get", "model")
    assert (done.returncode, done.stdout) == (78, "")
    assert "config.yaml, line 1, column 5: invalid YAML" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_invalid_set_changes_nothing(hermes):
    hermes("config", "set", "agent.max_turns", "5")
    before = (hermes.home / "config.yaml").read_bytes()
    done = hermes("config", "set", "agent.max_turns", "lots")
    assert done.returncode == 78
    assert "Nothing was changed" in done.stderr
    assert (hermes.home / "config.yaml").read_bytes() == before


def editor(tmp_path: Path, *versions: str) -> str:
    """An editor that writes one version after the other."""
    for number, text in enumerate(versions):
        (tmp_path / f"version{number}").write_text(text)
    script = tmp_path / "editor.sh"
    script.write_text(
        f'n=$(cat {tmp_path}/count 2>/dev/null || echo 0)\ncat {tmp_path}/version$n > "$1"\n'
        f"echo $((n + 1)) > {tmp_path}/count\n"
    )
    return f"sh {script}"


def test_edit_saves_valid_text(hermes, tmp_path):
    done = hermes("config", "edit", EDITOR=editor(tmp_path, "model: edited # mine\n"))
    assert done.returncode == 0, done.stderr
    assert (hermes.home / "config.yaml").read_text() == "model: edited # mine\n"


def test_edit_keeps_the_old_file_and_the_new_text_when_it_is_wrong(hermes, tmp_path):
    hermes("config", "set", "model", "old")
    done = hermes("config", "edit", VISUAL=editor(tmp_path, "agent: {max_turns: x}\n"))
    assert done.returncode == 78
    assert (hermes.home / "config.yaml").read_text() == "model: old\n"
    kept = Path(done.stderr.split("is kept in ")[1].strip())
    assert kept.read_text() == "agent: {max_turns: x}\n"
    kept.unlink()
    kept.parent.rmdir()


def test_edit_offers_another_try_at_a_terminal(hermes, tmp_path):
    versions = editor(tmp_path, "agent: {max_turns: x}\n", "agent: {max_turns: 4}\n")
    child = hermes.spawn("config", "edit", EDITOR=versions)
    child.expect("expected a whole number")
    child.expect(r"Edit again\? \[Y/n\] ")
    child.sendline("")
    child.expect("saved")
    child.expect(pexpect.EOF)
    assert (hermes.home / "config.yaml").read_text() == "agent: {max_turns: 4}\n"


def test_edit_without_a_change_or_an_editor(hermes, tmp_path):
    hermes("config", "set", "model", "x")
    done = hermes("config", "edit", EDITOR=editor(tmp_path, "model: x\n"))
    assert done.stdout == "No changes\n"
    for broken in ("false", "/no/such/editor", "'unclosed"):
        done = hermes("config", "edit", EDITOR=broken)
        assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert hermes("config", "edit").returncode == 2
    assert (hermes.home / "config.yaml").read_text() == "model: x\n"


def test_many_writers_lose_nothing(hermes):
    keys = [f"voice.key{number}" for number in range(8)]
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "hermes", "config", "set", key, "1"],
            env=hermes.env,
            stdout=subprocess.DEVNULL,
        )
        for key in keys
    ]
    assert [child.wait(timeout=120) for child in children] == [0] * len(keys)
    written = yaml.safe_load((hermes.home / "config.yaml").read_text())
    assert written == {"voice": {key.split(".")[1]: 1 for key in keys}}


def test_closed_pipe_prints_no_traceback(hermes):
    command = f"{sys.executable} -m hermes config show --all | head -1"
    done = subprocess.run(
        ["sh", "-c", command],
        env=hermes.env,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "_config_version: 0\n"
    assert done.stderr == ""


def test_reading_a_setting_loads_no_heavy_module(hermes):
    hermes.home.mkdir()
    (hermes.home / "config.yaml").write_text("agent:\n  max_turns: 7\nmodel: x\n")
    code = (
        "import sys; from hermes.cli.main import main\n"
        "assert main(['config', 'get', 'agent.max_turns']) == 0\n"
        "heavy = ('aiohttp', 'asyncio', 'anyio', 'ruamel', 'apsw', 'difflib', 'tempfile',"
        " 'subprocess', 'logging')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=hermes.env,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "7\n[]\n"
