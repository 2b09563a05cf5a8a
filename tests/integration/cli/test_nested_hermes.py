"""`hermes` as a command of the agent: same profile, or an error in the sandbox."""

import json
from pathlib import Path

import pytest

from hermes.testing.fake_openai import Call, Reply, Rule, Script
from support.cli_process import HERMES_PROGRAM, HermesCli, fake_model_process


def output_of_sending(root: Path, profile: str, backend: str) -> tuple[HermesCli, str]:
    """The output of `hermes send` run by the agent of a non-default profile."""
    send = Call("terminal", {"command": f"{HERMES_PROGRAM} send -t local kept"})
    script = Script(rules=[Rule("send it", [Reply("", [send]), Reply("Done.")])])
    with fake_model_process(root / "model", script) as model:
        hermes = HermesCli(root, model.url)
        for name in ("work", "usual"):
            assert hermes("profile", "create", name).code == 0
        assert hermes("profile", "use", "usual").code == 0
        assert hermes("-p", profile, "config", "set", "terminal.backend", backend).code == 0
        ran = hermes("-p", profile, "-q", "send it", "--json", "--yolo")
    messages = [event["message"] for event in ran.events if event["type"] == "said"]
    (result,) = [message for message in messages if message["type"] == "result"]
    return hermes, json.loads(result["parts"][0]["text"])["output"]


@pytest.mark.parametrize("profile", ["work", "default"])
def test_unsandboxed_hermes_uses_the_same_profile(tmp_path: Path, profile: str) -> None:
    hermes, output = output_of_sending(tmp_path, profile, "local")
    home = hermes.home if profile == "default" else hermes.home / "profiles" / profile
    path = Path(output.strip().removeprefix("local: written (").rstrip(")"))
    assert path.read_text() == "kept\n"
    assert path.is_relative_to(home)
    others = {"work", "default"} - {profile} | {"usual"}
    assert not any(f"/profiles/{name}/" in str(path) for name in others)


def test_sandboxed_hermes_gives_a_hint(tmp_path: Path) -> None:
    _, output = output_of_sending(tmp_path, "work", "auto")
    assert "not visible inside the agent's sandbox" in output
    assert "send_message" in output
