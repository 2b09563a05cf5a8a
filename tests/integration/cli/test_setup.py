"""`hermes setup`: from nothing to an answer, by flags or by questions, and once more."""

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
    """A person who has nothing yet."""
    one = HermesCli(tmp_path, model.url)
    for name in list(one.env):
        if name.startswith(("OPENAI_", "HERMES_INFERENCE_")):
            del one.env[name]
    return one


def test_an_address_is_enough(hermes: HermesCli, model: FakeModelProcess) -> None:
    ran = hermes("setup", "--base-url", model.url)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("Using custom/mock from now on.\n")
    assert hermes("-z", "hello") == (0, "Plain answer.\n", "")
    assert not (hermes.home / ".env").exists()


def test_a_key_is_read_kept_privately_and_sent(hermes: HermesCli, model: FakeModelProcess) -> None:
    words = ["setup", "--base-url", model.url, "--model", "mock-large", "--key-stdin"]
    ran = hermes(*words, stdin=f"{KEY}\n".encode())
    assert (ran.code, ran.err) == (0, "")
    assert KEY not in ran.out
    env = hermes.home / ".env"
    assert KEY in env.read_text()
    assert env.stat().st_mode & 0o777 == 0o600
    assert KEY not in (hermes.home / "config.yaml").read_text()
    assert hermes("-z", "hello").out == "Plain answer.\n"


def test_another_run_changes_it_and_leaves_nothing_of_the_first(
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


def test_a_key_from_a_variable(hermes: HermesCli, model: FakeModelProcess) -> None:
    words = ["setup", "--provider", "openai", "--model", "mock", "--key-env", "MINE"]
    unset = hermes(*words)
    assert unset.code == 2
    assert unset.err == "hermes: The variable MINE is not set.\n  export MINE=YOUR_KEY\n"
    ran = hermes(*words, MINE=KEY, OPENAI_BASE_URL=model.url)
    assert ran.code == 0, ran
    assert f"OPENAI_API_KEY={KEY}" in (hermes.home / ".env").read_text()


def test_yes_takes_the_server_of_this_machine(hermes: HermesCli, model: FakeModelProcess) -> None:
    ran = hermes("setup", "--yes", LM_BASE_URL=model.url)
    assert ran.out.startswith("Using lmstudio/mock from now on.\n"), ran


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "There is nobody to ask"),
        (["--yes"], "no key and no model server"),
        (["--provider", "opnrouter"], "There is no provider 'opnrouter'"),
        (["--provider", "openrouter"], "There is no key for OpenRouter"),
        (["--base-url", "localhost"], "is no address"),
        (["--base-url", "ftp://localhost:80"], "is no address"),
    ],
)
def test_what_is_missing_is_said_with_the_next_step(
    hermes: HermesCli, words: list[str], says: str
) -> None:
    ran = hermes("setup", *words)
    assert ran.code in {2, 78}
    assert ran.err.startswith("hermes: ")
    assert says in ran.err
    assert ran.err.count("\n") == 2
    assert not (hermes.home / "config.yaml").exists()


def test_what_cannot_be_reached_is_kept_only_on_demand(hermes: HermesCli) -> None:
    words = ["setup", "--base-url", "http://127.0.0.1:9/v1", "--model", "x"]
    ran = hermes(*words)
    assert ran.code == 1
    assert "--yes keeps it all the same" in ran.err
    assert not (hermes.home / "config.yaml").exists()
    kept = hermes(*words, "--yes")
    assert kept.code == 0
    assert "It could not be tried" in kept.err
    assert "http://127.0.0.1:9/v1" in (hermes.home / "config.yaml").read_text()


def test_a_model_that_is_not_listed_is_refused_unless_forced(
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


def test_by_questions(hermes: HermesCli, model: FakeModelProcess) -> None:
    child = pexpect.spawn(
        HERMES_PROGRAM, ["setup"], cwd=str(hermes.work), env=hermes.env, encoding="utf-8",
        dimensions=(50, 80), timeout=TEST_TIMEOUT,
    )  # fmt: skip
    child.delaybeforesend = None
    try:
        child.expect_exact("Which provider?")
        child.expect_exact("Number or name")
        child.sendline("custom")
        child.expect_exact("Its address")
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


def test_a_wrong_name_is_asked_for_again_and_a_refusal_leads_back_to_the_list(
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
            child.expect_exact("There is no provider 'opnai'. Did you mean openai?")
            child.expect_exact("Number or name")
        child.sendline("custom")
        child.expect_exact("Its address")
        child.sendline("http://127.0.0.1:9/v1")
        child.expect_exact(". Keep it all the same? [y/N]")
        child.sendline("n")
        child.expect_exact("Which provider?")
        child.expect_exact("Number or name")
        child.sendline("custom")
        child.expect_exact("Its address")
        child.sendline("localhost")
        child.expect_exact("'localhost' is no address. For example: http://")
        child.expect_exact("Its address")
        child.sendline(model.url)
        child.expect_exact("Number or name [mock]")
        child.sendline("mock-larg")
        child.expect_exact(
            "custom does not list the model 'mock-larg'. Similar models: mock-large. "
            "The same name once more takes it as it is."
        )
        child.expect_exact("Number or name [mock]")
        child.sendline("mock-larg")
        child.expect_exact("Using custom/mock-larg from now on.")
        child.expect_exact("Talk to it: hermes\r\n")
        assert exit_status(child) == 0
    finally:
        child.close(force=True)
