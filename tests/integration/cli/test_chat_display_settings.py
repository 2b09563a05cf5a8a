"""Display settings of the line-mode chat."""

import re
from pathlib import Path

import pytest

from hermes.testing.fake_openai import Call, Reply, Rule, Script
from support.cli_process import FakeModelProcess, HermesCli

PROMPT = "\x1b[1;36m> \x1b[0m"
WRITE = Call("write_file", {"path": "a-long-name.txt", "content": "one\ntwo\n"})
SCRIPT = Script(
    rules=[Rule("write", [Reply("", [WRITE], reasoning="A thought."), Reply("Written.")])],
    default=Reply("Plain answer."),
)
SETTINGS = """\
model:
  default: gpt-4o-mini
display:
  show_reasoning: false
  inline_diffs: false
  show_cost: true
  timestamps: true
  bell_on_complete: true
  compact: true
  tool_preview_length: 8
"""


@pytest.fixture
def hermes(tmp_path: Path, model: FakeModelProcess) -> HermesCli:
    hermes = HermesCli(tmp_path, model.url)
    hermes.env["HERMES_INFERENCE_MODEL"] = "gpt-4o-mini"
    return hermes


def shown_of(hermes: HermesCli, line: str) -> str:
    """The output between the line and the next prompt, without colours."""
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        child.sendline(line)
        child.expect_exact("\r\n")
        child.expect_exact(PROMPT)
        return re.sub(r"\x1b\[[0-9;?]*[a-zK]", "", child.before).replace("\r", "")


def test_default_display(hermes: HermesCli) -> None:
    usual = shown_of(hermes, "write it")
    assert "A thought.\n" in usual
    assert "write_file a-long-name.txt\n" in usual
    assert "    2 +two\n" in usual
    assert "\a" not in usual
    assert "cost" not in usual
    assert usual.endswith("Written.\n\n")
    assert not re.search(r"^\d\d:\d\d$", usual, re.MULTILINE)


def test_customized_display(hermes: HermesCli) -> None:
    hermes.configure(SETTINGS)
    liked = shown_of(hermes, "write it")
    assert "A thought." not in liked
    assert "write_file a-long-…\n" in liked
    assert "+2 -0" in liked
    assert "    2 +two\n" not in liked
    assert re.search(r"^\d\d:\d\d$", liked, re.MULTILINE)
    assert re.search(r"Written\.\n\(cost: \$\d\.\d{4}\)\n\a$", liked), liked


@pytest.mark.parametrize(
    ("settings", "turns"),
    [
        ("", 3),
        ("display:\n  resume_exchanges: 1\n", 1),
        ("display:\n  resume_display: minimal\n", 0),
    ],
)
def test_recap_length_follows_the_settings(hermes: HermesCli, settings: str, turns: int) -> None:
    for number in range(3):
        hermes("-z", f"hello {number}", *(["-c"] if number else []))
    hermes.configure(settings)
    with hermes.terminal("-c") as child:
        child.expect_exact(PROMPT)
        questions = re.findall(r"you: (hello \d)", child.before)
    assert questions == [f"hello {number}" for number in range(3)][3 - turns :]
