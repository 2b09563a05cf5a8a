"""Which server gets which key, however provider, address and key are set or changed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hermes.testing.fake_openai import Reply, Script
from support.cli_process import FakeModelProcess, HermesCli, exit_status, fake_model_process

SCRIPT = Script(models=("m", "deepseek-chat"), default=Reply("From the other server."))
DEEPSEEK_KEY = "sk-deepseek-0123456789"
OTHER_KEY = "sk-other-0123456789"


@pytest.fixture(scope="module")
def deepseek(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeModelProcess]:
    """Stands for DeepSeek's own address; `model` is a server that must not get its key."""
    script = Script(models=("deepseek-chat",), default=Reply("From DeepSeek."))
    with fake_model_process(tmp_path_factory.mktemp("deepseek"), script) as running:
        yield running


@pytest.fixture
def hermes(tmp_path: Path, model: FakeModelProcess, deepseek: FakeModelProcess) -> HermesCli:
    one = HermesCli(tmp_path, model.url)
    for name in list(one.env):
        if name.startswith(("OPENAI_", "HERMES_INFERENCE_")):
            del one.env[name]
    one.home.mkdir()
    variables = f"DEEPSEEK_API_KEY={DEEPSEEK_KEY}\nDEEPSEEK_BASE_URL={deepseek.url}\n"
    (one.home / ".env").write_text(variables)
    return one


def other_server(url: str, *, key: bool = False) -> str:
    """Settings of a custom server, with or without its key in the file."""
    named = f"custom_providers:\n  - name: mocky\n    base_url: {url}\n    api_key: {OTHER_KEY}\n"
    own = f"  api_key: {OTHER_KEY}\n" if key else ""
    return f"{named}model:\n  default: m\n  provider: mocky\n  base_url: {url}\n{own}"


PROMPT = "\x1b[1;36m> \x1b[0m"
SWITCHES = {
    "model": [["model", "deepseek-chat", "--provider", "deepseek"]],
    "setup": [["setup", "--provider", "deepseek", "--model", "deepseek-chat"]],
    "config set": [
        ["config", "set", "model.provider", "deepseek"],
        ["config", "set", "model.default", "deepseek-chat"],
    ],
    "chat": [],
}


def switch_in_a_chat(hermes: HermesCli) -> None:
    """Switch the model for this session and all later ones."""
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        for line in ("/model deepseek-chat --provider deepseek --global", "in the same chat"):
            child.sendline(line)
            child.expect_exact("\r\n")
            child.expect_exact(PROMPT)
        child.sendline("/quit")
        assert exit_status(child) == 0


@pytest.mark.parametrize(
    ("switch", "key"),
    [("model", False), ("model", True), ("setup", True), ("config set", False), ("chat", True)],
)
def test_other_provider_is_used_at_its_own_address(
    hermes: HermesCli, model: FakeModelProcess, deepseek: FakeModelProcess, switch: str, key: bool
) -> None:
    hermes.configure(other_server(model.url, key=key))
    for args in SWITCHES[switch]:
        ran = hermes(*args)
        assert ran.code == 0, ran
    if switch == "chat":
        switch_in_a_chat(hermes)
    assert hermes("-z", f"after {switch} {key}") == (0, "From DeepSeek.\n", "")
    assert deepseek.keys_seen(f"after {switch} {key}") == [DEEPSEEK_KEY]
    assert OTHER_KEY not in deepseek.keys_seen()
    assert DEEPSEEK_KEY not in model.keys_seen()


def test_provider_is_not_combined_with_an_unrelated_address_and_key(
    hermes: HermesCli, model: FakeModelProcess, deepseek: FakeModelProcess
) -> None:
    hermes.configure(
        f"model:\n  default: deepseek-chat\n  base_url: {model.url}\n  api_key: {OTHER_KEY}\n"
    )
    seen = hermes("config", "set", "model.provider", "deepseek")
    assert seen.code == 0
    for name in ("model.base_url", "model.api_key"):
        assert name in seen.err
    assert "removed" in seen.err
    assert hermes("-z", "at home") == (0, "From DeepSeek.\n", "")
    assert deepseek.keys_seen("at home") == [DEEPSEEK_KEY]


def test_provider_from_env_does_not_get_the_configured_address(
    hermes: HermesCli, model: FakeModelProcess
) -> None:
    hermes.configure(f"model:\n  default: m\n  base_url: {model.url}\n")
    ran = hermes("-z", "by environment", HERMES_INFERENCE_PROVIDER="deepseek")
    assert ran == (0, "From the other server.\n", "")
    assert model.keys_seen("by environment") == [""]


def test_address_set_with_its_provider_gets_the_key(
    hermes: HermesCli, model: FakeModelProcess
) -> None:
    hermes.configure("model:\n  default: deepseek-chat\n  provider: deepseek\n")
    seen = hermes("config", "set", "model.base_url", model.url)
    assert seen.code == 0
    assert "the key of deepseek will be sent to this address" in seen.err
    own = {"DEEPSEEK_API_KEY": "sk-of-the-proxy-0123456789"}
    (hermes.home / ".env").unlink()
    assert hermes("-z", "through a proxy", **own).out == "From the other server.\n"
    assert model.keys_seen("through a proxy") == ["sk-of-the-proxy-0123456789"]


def test_key_does_not_move_to_another_address(
    hermes: HermesCli, model: FakeModelProcess, deepseek: FakeModelProcess
) -> None:
    first = f"model:\n  default: m\n  provider: custom\n  base_url: {deepseek.url}\n"
    hermes.configure(f"{first}  api_key: sk-of-the-first-0123456789\n")
    seen = hermes("config", "set", "model.base_url", model.url)
    assert seen.code == 0
    assert "model.api_key belonged to the previous setting and was removed" in seen.err
    assert hermes("-z", "another address").out == "From the other server.\n"
    assert model.keys_seen("another address") == [""]


def test_setup_does_not_send_a_key_to_another_server(
    hermes: HermesCli, model: FakeModelProcess, deepseek: FakeModelProcess
) -> None:
    key = "sk-set-up-0123456789"
    args = ["setup", "--model", "deepseek-chat", "--base-url"]
    assert hermes(*args, deepseek.url, "--key-stdin", stdin=f"{key}\n".encode()).code == 0
    for _ in range(2):
        assert hermes(*args, model.url).code == 0
    assert key in deepseek.keys_seen()
    assert key not in model.keys_seen()


def test_pooled_key_of_a_custom_server_stays_with_it(
    hermes: HermesCli, model: FakeModelProcess, deepseek: FakeModelProcess
) -> None:
    key = "sk-pooled-0123456789"
    at = "model:\n  default: m\n  provider: custom\n  base_url: {}\n"
    hermes.configure(at.format(deepseek.url))
    assert hermes("auth", "add", "custom", key).code == 0
    assert hermes("-z", "with the pool").out == "From DeepSeek.\n"
    assert deepseek.keys_seen("with the pool") == [key]
    hermes.configure(at.format(model.url))
    assert hermes("-z", "without the pool").out == "From the other server.\n"
    assert model.keys_seen("without the pool") == [""]
