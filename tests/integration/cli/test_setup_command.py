"""`hermes setup` by flags and by questions."""

from pathlib import Path

import pexpect
import pytest

from hermes.testing.fake_openai import Reply, Script
from support.cli_process import (
    HERMES_PROGRAM,
    TEST_TIMEOUT,
    FakeModelProcess,
    HermesCli,
    exit_status,
)

KEY = "sk-of-this-test-0123456789"
SCRIPT = Script(models=("mock", "mock-large"), default=Reply("Plain answer."))


@pytest.fixture
def hermes(tmp_path: Path, model: FakeModelProcess) -> HermesCli:
    """An empty home."""
    one = HermesCli(tmp_path, model.url)
    for name in list(one.env):
        if name.startswith(("OPENAI_", "HERMES_INFERENCE_")):
            del one.env[name]
    return one


def test_address_alone_is_enough(hermes: HermesCli, model: FakeModelProcess) -> None:
    ran = hermes("setup", "--base-url", model.url)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Using custom/mock from now on.\n")
    assert hermes("-z", "hello") == (0, "Plain answer.\n", "")
    assert not (hermes.home / ".env").exists()


def test_key_is_read_stored_privately_and_sent(hermes: HermesCli, model: FakeModelProcess) -> None:
    words = ["setup", "--base-url", model.url, "--model", "mock-large", "--key-stdin"]
    ran = hermes(*words, stdin=f"{KEY}\n".encode())
    assert (ran.code, ran.err) == (0, "")
    assert KEY not in ran.out
    env = hermes.home / ".env"
    assert KEY in env.read_text()
    assert env.stat().st_mode & 0o777 == 0o600
    assert KEY not in (hermes.home / "config.yaml").read_text()
    assert hermes("-z", "hello").out == "Plain answer.\n"


def test_second_run_replaces_the_first_completely(
    hermes: HermesCli, model: FakeModelProcess
) -> None:
    hermes.configure("# mine\nagent:\n  max_turns: 7  # few\n")
    words = ["--base-url", model.url, "--key-stdin"]
    assert hermes("setup", *words, stdin=f"{KEY}\n".encode()).code == 0
    ran = hermes("setup", "--provider", "lmstudio", LM_BASE_URL=model.url)
    assert ran.code == 0, ran
    text = (hermes.home / "config.yaml").read_text()
    assert text.startswith("# mine\nagent:\n  max_turns: 7  # few\n")
    assert "provider: lmstudio" in text
    assert "base_url" not in text
    assert "api_key" not in text
    again = hermes("setup", "--yes", LM_BASE_URL=model.url)
    assert again.out.startswith("Using lmstudio/mock from now on.\n")


def test_key_is_read_from_a_variable(hermes: HermesCli, model: FakeModelProcess) -> None:
    words = ["setup", "--provider", "openai", "--model", "mock", "--key-env", "MINE"]
    unset = hermes(*words)
    assert unset.code == 2
    assert unset.err == "hermes: The variable MINE is not set.\n  Set it: export MINE=YOUR_KEY\n"
    ran = hermes(*words, MINE=KEY, OPENAI_BASE_URL=model.url)
    assert ran.code == 0, ran
    assert f"OPENAI_API_KEY={KEY}" in (hermes.home / ".env").read_text()


def test_yes_uses_the_local_server(hermes: HermesCli, model: FakeModelProcess) -> None:
    ran = hermes("setup", "--yes", LM_BASE_URL=model.url)
    assert ran.out.startswith("Using lmstudio/mock from now on.\n"), ran


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "Cannot ask for a model"),
        (["--yes"], "No key and no local model server"),
        (["--provider", "opnrouter"], "Unknown provider: 'opnrouter'"),
        (["--provider", "openrouter"], "No key for OpenRouter"),
        (["--base-url", "localhost"], "is not a valid address"),
        (["--base-url", "ftp://localhost:80"], "is not a valid address"),
    ],
)
def test_missing_input_gives_a_hint(hermes: HermesCli, words: list[str], says: str) -> None:
    ran = hermes("setup", *words)
    assert ran.code in {2, 78}
    assert ran.err.startswith("hermes: ")
    assert says in ran.err
    assert ran.err.count("\n") == 2
    assert not (hermes.home / "config.yaml").exists()


def test_unreachable_provider_is_saved_only_with_yes(hermes: HermesCli) -> None:
    words = ["setup", "--base-url", "http://127.0.0.1:9/v1", "--model", "x"]
    ran = hermes(*words)
    assert ran.code == 1
    assert "use --yes to save it anyway" in ran.err
    assert not (hermes.home / "config.yaml").exists()
    kept = hermes(*words, "--yes")
    assert kept.code == 0
    assert "Not tested" in kept.err
    assert "http://127.0.0.1:9/v1" in (hermes.home / "config.yaml").read_text()


def test_unlisted_model_is_rejected_unless_forced(
    hermes: HermesCli, model: FakeModelProcess
) -> None:
    words = ["setup", "--base-url", model.url, "--model", "mock-larg", "--yes"]
    ran = hermes(*words)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "hermes: custom does not list the model 'mock-larg'.\n"
        "  Similar models: mock-large; to use the name anyway, add --force\n"
    )
    assert not (hermes.home / "config.yaml").exists()
    forced = hermes(*words, "--force")
    assert (forced.code, forced.err) == (0, "")
    assert "mock-larg" in (hermes.home / "config.yaml").read_text()


def test_setup_by_questions(hermes: HermesCli, model: FakeModelProcess) -> None:
    child = pexpect.spawn(
        HERMES_PROGRAM, ["setup"], cwd=str(hermes.work), env=hermes.env, encoding="utf-8",
        dimensions=(50, 80), timeout=TEST_TIMEOUT,
    )  # fmt: skip
    child.delaybeforesend = None
    try:
        child.expect_exact("Which provider?")
        child.expect_exact("Number or name")
        child.sendline("custom")
        child.expect_exact("Server address")
        child.sendline(model.url.removeprefix("http://"))
        child.expect_exact("Which model?")
        child.expect_exact("Number or name [mock]")
        child.sendline("2")
        child.expect_exact("Using custom/mock-large from now on.")
        assert exit_status(child) == 0
    finally:
        child.close(force=True)
    hermes("-z", "hello SECOND")
    assert model.requests("hello SECOND")[0]["model"] == "mock-large"


def test_settings_of_another_home_are_offered(hermes: HermesCli, model: FakeModelProcess) -> None:
    other = hermes.home.parent / ".hermes"
    (other / "memories").mkdir(parents=True)
    (other / "memories" / "MEMORY.md").write_text("likes tea")
    settings = f"model: {{provider: custom, default: mock, base_url: '{model.url}'}}\n"
    (other / "config.yaml").write_text(settings)
    (other / ".env").write_text(f"CUSTOM_API_KEY={KEY}\nTELEGRAM_BOT_TOKEN=1:a\n")
    child = pexpect.spawn(
        HERMES_PROGRAM, ["setup"], cwd=str(hermes.work), env=hermes.env, encoding="utf-8",
        dimensions=(50, 300), timeout=TEST_TIMEOUT,
    )  # fmt: skip
    child.delaybeforesend = None
    try:
        child.expect_exact(f"Found a home in {other}: model custom/mock, 2 keys. Copy its")
        child.sendline("")
        child.expect_exact("Not copied (each home needs its own): TELEGRAM_BOT_TOKEN")
        child.expect_exact("Start chatting: hermes")
        assert exit_status(child) == 0
    finally:
        child.close(force=True)
    assert (hermes.home / "memories" / "MEMORY.md").read_text() == "likes tea"
    assert (hermes.home / ".env").read_text() == f"CUSTOM_API_KEY={KEY}\n"
    assert (hermes.home / ".env").stat().st_mode & 0o777 == 0o600
    assert hermes("-z", "hello") == (0, "Plain answer.\n", "")


def test_providers_without_a_key_are_found_by_a_part_of_their_name(hermes: HermesCli) -> None:
    child = pexpect.spawn(
        HERMES_PROGRAM, ["setup"], cwd=str(hermes.work), env=hermes.env, encoding="utf-8",
        dimensions=(50, 120), timeout=TEST_TIMEOUT,
    )  # fmt: skip
    child.delaybeforesend = None
    try:
        child.expect_exact("Number or name")
        assert child.before.count("\r\n") < 12
        assert "Hugging Face" not in child.before
        assert "not for programming" in child.before
        child.sendline("?")
        child.expect_exact("Hugging Face")
        child.expect_exact("Number or name")
        child.sendline("hugging")
        child.expect_exact("Key for Hugging Face")
    finally:
        child.close(force=True)


def test_ctrl_c_ends_the_questions_and_changes_nothing(hermes: HermesCli) -> None:
    child = pexpect.spawn(
        HERMES_PROGRAM, ["setup"], cwd=str(hermes.work), env=hermes.env, encoding="utf-8",
        timeout=TEST_TIMEOUT,
    )  # fmt: skip
    child.delaybeforesend = None
    try:
        child.expect_exact("Number or name")
        child.sendintr()
        child.expect_exact("No model was chosen. When you are ready: hermes setup")
        assert exit_status(child) == 130
    finally:
        child.close(force=True)
    assert not (hermes.home / "config.yaml").exists()


def test_wrong_name_is_asked_again_and_refusal_returns_to_the_address(
    hermes: HermesCli, model: FakeModelProcess
) -> None:
    child = pexpect.spawn(
        HERMES_PROGRAM, ["setup"], cwd=str(hermes.work), env=hermes.env, encoding="utf-8",
        dimensions=(50, 200), timeout=TEST_TIMEOUT,
    )  # fmt: skip
    child.delaybeforesend = None
    try:
        child.expect_exact("Number or name")
        for _ in range(4):
            child.sendline("opnai")
            child.expect_exact("Unknown provider: 'opnai'. Did you mean openai?")
            child.expect_exact("Number or name")
        child.sendline("custom")
        child.expect_exact("Server address")
        child.sendline("http://127.0.0.1:9/v1")
        child.expect_exact(". Use it anyway? [y/N]")
        child.sendline("perhaps")
        child.expect_exact("Type y or n.")
        child.sendline("n")
        child.expect_exact("Server address (< goes back) [http://127.0.0.1:9/v1]")
        child.sendline("<")
        child.expect_exact("Which provider?")
        child.expect_exact("Number or name")
        child.sendline("custom")
        for wrong in ("localhost", "not a url."):
            child.expect_exact("Server address")
            child.sendline(wrong)
            child.expect_exact(f"'{wrong}' is not a valid address. For example: http://")
        child.expect_exact("Server address")
        child.sendline(model.url)
        child.expect_exact("Number or name [mock]")
        child.sendline("mock-larg")
        child.expect_exact(
            "custom does not list the model 'mock-larg'. Similar models: mock-large. "
            "Enter the same name again to use it anyway."
        )
        child.expect_exact("Number or name [mock]")
        child.sendline("mock-larg")
        child.expect_exact("Using custom/mock-larg from now on.")
        child.expect_exact("Start chatting: hermes\r\n")
        assert exit_status(child) == 0
    finally:
        child.close(force=True)
