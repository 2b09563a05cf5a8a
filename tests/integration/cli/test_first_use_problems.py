"""Common problems of new users give one sentence with the cause and the next command."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pytest

from hermes.testing.fake_openai import Reply, Script
from support.cli_process import (
    HERMES_PROGRAM,
    TEST_TIMEOUT,
    CliResult,
    FakeModelProcess,
    HermesCli,
    exit_status,
)

KEY = "sk-the-right-one-0123456789"
SCRIPT = Script(models=("mock",), default=Reply("Plain answer."), api_key=KEY)


def without_settings(hermes: HermesCli) -> HermesCli:
    for name in list(hermes.env):
        if name.startswith(("OPENAI_", "HERMES_INFERENCE_")):
            del hermes.env[name]
    return hermes


@contextmanager
def asked(hermes: HermesCli, *words: str) -> Iterator[pexpect.spawn]:
    child = pexpect.spawn(
        HERMES_PROGRAM, list(words), cwd=str(hermes.work), env=hermes.env, encoding="utf-8",
        dimensions=(50, 80), timeout=TEST_TIMEOUT,
    )  # fmt: skip
    child.delaybeforesend = None
    try:
        yield child
    finally:
        child.close(force=True)


def in_one_sentence(ran: CliResult, says: str, next_step: str) -> None:
    """Check for one message with the cause and the next command, without a traceback."""
    assert ran.code != 0
    assert "Traceback" not in ran.err
    assert ran.err.count("hermes: ") == 1
    assert says in ran.err
    assert next_step in ran.err


def finding(hermes: HermesCli, check: str, *words: str) -> dict[str, str]:
    """The first warning or error of a check."""
    ran = hermes("doctor", "--json", *words)
    found = [one for one in json.loads(ran.out) if one["check"] == check]
    (bad,) = [one for one in found if one["grade"] != "ok"]
    assert ran.code == int(bad["grade"] == "error")
    assert bad["fix"]
    return bad


def test_missing_model_is_reported(hermes: HermesCli) -> None:
    without_settings(hermes)
    in_one_sentence(hermes("-z", "hello"), "No model provider is set up", "hermes setup")
    assert "hermes -p work setup" in hermes("profile", "create", "work").out
    ran = hermes("-p", "work", "-z", "hello")
    in_one_sentence(ran, "No model provider is set up", "hermes -p work setup")
    found = finding(hermes, "model")
    assert found["says"].startswith("No model provider is set up")
    assert found["fix"].startswith("hermes setup")
    assert found["fix"].count("hermes setup") == 1
    assert "model     No model provider is set up: no key is set" in hermes("status").out


def test_wrong_key_is_reported(hermes: HermesCli, model: FakeModelProcess) -> None:
    in_one_sentence(hermes("-z", "hello"), "key", "hermes ")
    assert "key" in finding(hermes, "model")["says"]
    tried = hermes("setup", "--base-url", model.url, "--key-stdin", stdin=b"sk-wrong\n")
    in_one_sentence(tried, "key", "hermes ")
    assert not (hermes.home / "config.yaml").exists()
    assert (
        hermes("setup", "--base-url", model.url, "--key-stdin", stdin=f"{KEY}\n".encode()).code == 0
    )
    assert hermes("-z", "hello").out == "Plain answer.\n"


def test_setup_asks_again_for_a_wrong_key(hermes: HermesCli, model: FakeModelProcess) -> None:
    without_settings(hermes)
    with asked(hermes, "setup", "--base-url", model.url) as child:
        child.expect_exact("custom requires a key (401)")
        child.expect_exact("Key for")
        child.sendline("sk-wrong")
        child.expect_exact("rejected the key")
        child.expect_exact("Key for")
        child.sendline(KEY)
        child.expect_exact("Which model?")
        assert KEY not in (child.before or "")
        child.sendline("")
        child.expect_exact("Using custom/mock from now on.")
        assert exit_status(child) == 0
    assert hermes("-z", "hello").out == "Plain answer.\n"


def test_first_start_leads_to_an_answer(hermes: HermesCli, model: FakeModelProcess) -> None:
    without_settings(hermes)
    with asked(hermes, "--plain") as child:
        child.expect_exact("Which provider?")
        child.expect_exact("Number or name")
        child.sendline("custom")
        child.expect_exact("Server address")
        child.sendline(model.url)
        child.expect_exact("Key for")
        child.sendline(KEY)
        child.expect_exact("Which model?")
        child.sendline("")
        child.expect_exact("Using custom/mock from now on.")
        child.expect_exact("> ")
        child.sendline("hello")
        child.expect_exact("Plain answer.")
        child.sendline("/quit")
        assert exit_status(child) == 0


def test_ctrl_c_at_a_question_changes_nothing(hermes: HermesCli) -> None:
    without_settings(hermes)
    with asked(hermes, "setup") as child:
        child.expect_exact("Number or name")
        child.sendintr()
        assert exit_status(child) == 130
        assert "Traceback" not in (child.before or "")
    assert not (hermes.home / "config.yaml").exists()


def test_missing_network_is_reported(hermes: HermesCli) -> None:
    hermes.env["OPENAI_BASE_URL"] = "http://nowhere.invalid/v1"
    hermes.configure("agent:\n  api_max_retries: 1\n")
    in_one_sentence(hermes("-z", "hello"), "nowhere.invalid", "network")
    assert "nowhere.invalid" in finding(hermes, "model")["says"]


def test_stopped_server_is_reported(hermes: HermesCli) -> None:
    hermes.env["OPENAI_BASE_URL"] = "http://127.0.0.1:9/v1"
    in_one_sentence(hermes("-z", "hello"), "127.0.0.1:9", "")
    assert "127.0.0.1:9" in finding(hermes, "model")["says"]


def test_silent_server_is_reported(hermes: HermesCli) -> None:
    """The doctor waits at most five seconds for a model."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        hermes.env["OPENAI_BASE_URL"] = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        assert finding(hermes, "model")["grade"] == "error"


@pytest.mark.parametrize(
    "words", [("-z", "hello"), ("setup", "--yes"), ("tools", "disable", "file")]
)
def test_unwritable_home_is_reported(hermes: HermesCli, words: tuple[str, ...]) -> None:
    hermes.env["HERMES_HOME"] = "/proc/hermes"
    in_one_sentence(hermes(*words), "/proc/hermes cannot be created", "HERMES_HOME")


def test_doctor_reports_an_unwritable_home(hermes: HermesCli) -> None:
    hermes.env["HERMES_HOME"] = "/proc/hermes"
    assert "/proc/hermes is not writable" in finding(hermes, "home")["says"]


def test_home_that_is_a_file_is_reported(hermes: HermesCli) -> None:
    hermes.home.write_text("a file")
    in_one_sentence(hermes("status"), "is not a directory", "HERMES_HOME")
    assert "is not a directory" in finding(hermes, "home")["says"]


def test_full_disk_is_reported(hermes: HermesCli) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "hermes", "status"], env=hermes.env, stdout=full,
            stderr=subprocess.PIPE, timeout=TEST_TIMEOUT, check=False,
        )  # fmt: skip
    ran = CliResult(done.returncode, "", done.stderr.decode())
    in_one_sentence(ran, "No space left on device", "Free some space")


def test_old_python_is_reported(hermes: HermesCli) -> None:
    program = "import sys; sys.version_info = (3, 9, 2); import hermes.cli.main"
    done = subprocess.run(
        [sys.executable, "-c", program], env=hermes.env, capture_output=True, text=True,
        timeout=TEST_TIMEOUT, check=False,
    )  # fmt: skip
    in_one_sentence(
        CliResult(done.returncode, done.stdout, done.stderr), "Python 3.9", "make PYTHON="
    )


def test_port_in_use_is_reported(hermes: HermesCli) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        hermes.configure(
            f"platforms:\n  webhook:\n    enabled: true\n    extra:\n      port: {port}\n"
        )
        hermes.env["OPENAI_API_KEY"] = KEY
        found = finding(hermes, "ports")
    assert f"127.0.0.1:{port}" in found["says"]
    assert found["fix"].endswith(f": hermes config set platforms.webhook.extra.port {port + 1}")


def test_doctor_and_status_work_with_invalid_settings(hermes: HermesCli) -> None:
    hermes.configure("agent:\n  max_turns: many\n")
    found = finding(hermes, "settings")
    assert "agent.max_turns" in found["says"]
    assert "hermes doctor" in hermes("status").out


def test_doctor_finds_no_problems_in_a_valid_home(hermes: HermesCli) -> None:
    hermes.env["OPENAI_API_KEY"] = KEY
    assert hermes("-z", "hello").code == 0
    ran = hermes("doctor")
    assert ran.code == 0, ran
    assert ran.err == ""
    assert "ok       model     openai/mock is available\n" in ran.out
    assert "1 session, 2 messages" in ran.out


def test_doctor_fix_applies_safe_fixes(hermes: HermesCli) -> None:
    hermes.env["OPENAI_API_KEY"] = KEY
    assert hermes("-z", "hello").code == 0
    dotenv = hermes.home / ".env"
    dotenv.write_text("X=1\n")
    dotenv.chmod(0o644)
    (hermes.home / "plans").rmdir()
    before = hermes("doctor")
    assert "2 can be fixed automatically: hermes doctor --fix" in before.out
    assert dotenv.stat().st_mode & 0o777 == 0o644
    fixed = hermes("doctor", "--fix")
    assert fixed.out.count("fixed ") == 2
    assert dotenv.stat().st_mode & 0o777 == 0o600
    assert (hermes.home / "plans").is_dir()
    assert "fixed" not in hermes("doctor", "--fix").out


def test_status_shows_all_rows(hermes: HermesCli) -> None:
    hermes.env["OPENAI_API_KEY"] = KEY
    assert hermes("-z", "hello").code == 0
    status = json.loads(hermes("status", "--json").out)
    assert (status["model"], status["sessions"], status["gateway"]) == (
        "openai/mock",
        1,
        "not running",
    )
    assert not any(status["waiting"].values())
    lines = {line.split()[0] for line in hermes("status").out.splitlines()}
    assert lines >= {"profile", "model", "gateway", "channels", "sandbox", "sessions", "waiting"}


def test_running_gateway_is_shown(hermes: HermesCli) -> None:
    hermes.env["OPENAI_API_KEY"] = KEY
    hermes.configure("platforms:\n  webhook:\n    enabled: true\n    extra:\n      port: 0\n")
    assert hermes("gateway", "start").code == 0
    try:
        status = json.loads(hermes("status", "--json").out)
        assert status["gateway"].startswith("running (pid ")
        assert status["channels"][0].startswith("webhook connect")
        looked = hermes("doctor")
        assert looked.code == 0, looked
        assert "webhook is connect" in looked.out
        changed = hermes("tools", "disable", "terminal")
        assert changed.err == "To apply this to the running gateway: hermes gateway restart\n"
    finally:
        hermes("gateway", "stop", "--force")
    assert "not running: hermes gateway start" in hermes("status").out
    logged = hermes("logs", "--level", "info").out
    assert "starting the gateway for default" in logged
    assert "the gateway is ready: serving default" in logged
