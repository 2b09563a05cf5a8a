"""`hermes model` lists models and changes the current one."""

import json
from pathlib import Path

from hermes.testing.fake_openai import Reply, Script
from support.cli_process import FakeModelProcess, HermesCli, exit_status, fake_model_process

SCRIPT = Script(
    models=("mock", "mock-large", *(f"tiny-{number:02}" for number in range(20))),
    default=Reply("Plain answer."),
)


def without_provider(hermes: HermesCli) -> HermesCli:
    for name in list(hermes.env):
        if name.startswith(("OPENAI_", "HERMES_INFERENCE_")):
            del hermes.env[name]
    return hermes


def test_list_marks_the_current_model(hermes: HermesCli, model: FakeModelProcess) -> None:
    ran = hermes("model")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == "In use: openai/mock"
    assert f"openai (on this machine, {model.url})" in lines
    assert "  * mock" in lines
    assert "    mock-large" in lines
    assert "    … and 10 more (--all)" in lines
    assert len(hermes("model", "--all").out.splitlines()) == len(lines) + 9


def test_model_is_chosen_from_the_list_at_a_terminal(hermes: HermesCli) -> None:
    with hermes.shell_terminal("model") as child:
        child.expect_exact("Enter keeps it")
        child.sendline("tiny")
        child.expect_exact("openai/tiny-19")
        child.expect_exact("Enter keeps it")
        child.sendline("no such model")
        child.expect_exact("No model matches")
        child.expect_exact("Enter keeps it")
        child.sendline("mock-large")
        child.expect_exact("Using openai/mock-large from now on.")
    with hermes.shell_terminal("model") as child:
        child.expect_exact("Enter keeps it")
        child.sendline("")
        child.expect_exact("Still using openai/mock")


def test_ctrl_c_leaves_the_list(hermes: HermesCli) -> None:
    with hermes.shell_terminal("model") as child:
        child.expect_exact("Enter keeps it")
        child.expect_exact("[keep]: ")
        child.sendintr()
        assert exit_status(child) == 130


def test_list_is_available_as_json(hermes: HermesCli) -> None:
    document = json.loads(hermes("model", "--json").out)
    assert document["in_use"] == "openai/mock"
    (offer,) = [one for one in document["providers"] if one["provider"] == "openai"]
    assert offer["models"][:2] == ["mock", "mock-large"]


def test_local_server_is_found_and_used(hermes: HermesCli, model: FakeModelProcess) -> None:
    without_provider(hermes).env["LM_BASE_URL"] = model.url
    listed = hermes("model")
    assert f"lmstudio (on this machine, {model.url})" in listed.out
    assert hermes("-z", "hello").out == "Plain answer.\n"
    assert model.requests()[-1]["model"] == "mock"
    assert "lmstudio/mock, found on this machine" in hermes("status").out


def test_change_is_saved_without_touching_other_settings(
    hermes: HermesCli, model: FakeModelProcess
) -> None:
    hermes.configure("# mine\nagent:\n  max_turns: 50  # enough\n")
    ran = hermes("model", "mock-large")
    assert (ran.code, ran.out, ran.err) == (0, "Using openai/mock-large from now on.\n", "")
    text = (hermes.home / "config.yaml").read_text()
    assert text.startswith("# mine\nagent:\n  max_turns: 50  # enough\n")
    assert hermes("model").out.startswith("In use: openai/mock-large\n")
    hermes("-z", "hello LARGE")
    assert model.requests("hello LARGE")[0]["model"] == "mock-large"


def test_unlisted_model_is_rejected_unless_forced(hermes: HermesCli) -> None:
    ran = hermes("model", "mock-larg")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "hermes: openai does not list the model 'mock-larg'.\n"
        "  Similar models: mock-large; to use the name anyway, add --force\n"
    )
    assert not (hermes.home / "config.yaml").exists()
    forced = hermes("model", "mock-larg", "--force")
    assert (forced.code, forced.out, forced.err) == (0, "Using openai/mock-larg from now on.\n", "")


def test_unverifiable_model_is_saved_with_a_warning(hermes: HermesCli) -> None:
    ran = hermes("model", "mock-larg", OPENAI_BASE_URL="http://127.0.0.1:9/v1")
    assert (ran.code, ran.out) == (0, "Using openai/mock-larg from now on.\n")
    assert ran.err == (
        "hermes: warning: mock-larg could not be checked (cannot connect to openai at "
        "http://127.0.0.1:9/v1: Connection refused); to check it later: hermes doctor\n"
    )


def test_unknown_provider_changes_nothing(hermes: HermesCli) -> None:
    ran = hermes("model", "mock", "--provider", "nobody")
    assert ran.code == 78
    assert "nobody" in ran.err
    assert not (hermes.home / "config.yaml").exists()
    assert hermes("model", "--provider", "nobody").code == 2


def test_unreachable_provider_is_listed_with_its_error(hermes: HermesCli, tmp_path: Path) -> None:
    with fake_model_process(tmp_path / "refusing", Script(api_key="another")) as refusing:
        ran = hermes("model", OPENAI_BASE_URL=refusing.url)
    assert ran.code == 0
    assert "401" in ran.out.splitlines()[3]


def test_no_provider_gives_a_hint(hermes: HermesCli) -> None:
    ran = without_provider(hermes)("model")
    assert ran.code == 0
    assert ran.out.startswith("In use: no model yet\n")
    assert "hermes config set OPENROUTER_API_KEY" in ran.out


def test_model_names_are_escaped(hermes: HermesCli, tmp_path: Path) -> None:
    evil = "evil\x1b]0;owned\x07\x9b31m\u202e"
    with fake_model_process(tmp_path / "evil", Script(models=(evil, "mock"))) as steering:
        listed = hermes("model", OPENAI_BASE_URL=steering.url)
        slip = hermes("model", "evil", OPENAI_BASE_URL=steering.url)
    assert "evil␛]0;owned␇" in listed.out
    for text in (listed.out, listed.err, slip.out, slip.err):
        assert not set("\x1b\x07\x9b\u202e") & set(text)


def test_secret_in_an_address_is_masked(hermes: HermesCli, model: FakeModelProcess) -> None:
    url = f"{model.url}?api_key=hunter2-hunter2"
    for words in (["model"], ["model", "--json"]):
        ran = hermes(*words, OPENAI_BASE_URL=url)
        assert "hunter2" not in ran.out + ran.err
