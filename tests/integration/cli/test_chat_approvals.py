"""Approvals and questions at a real terminal."""

from pathlib import Path

import pexpect
import pytest

from hermes.testing.fake_openai import Call, Reply, Rule, Script
from support.cli_process import FakeModelProcess, HermesCli, exit_status

PROMPT = "\x1b[1;36m> \x1b[0m"
DELETE = {"command": "rm -rf build", "escalate": "outside", "reason": "to build anew"}
SCRIPT = Script(
    rules=[
        Rule("delete", [Reply("", [Call("terminal", DELETE)]), Reply("That was it.")]),
        Rule("colour", [
            Reply("", [Call("clarify", {"question": "Which?", "choices": ["red", "blue"]})]),
            Reply("That was it."),
        ]),
    ],
    default=Reply("Plain answer."),
)  # fmt: skip


@pytest.fixture
def hermes(tmp_path: Path, model: FakeModelProcess) -> HermesCli:
    hermes = HermesCli(tmp_path, model.url)
    hermes.configure("approvals:\n  mode: manual\n")
    (hermes.work / "build").mkdir(parents=True)
    return hermes


def prompt_text(child: pexpect.spawn) -> str:
    child.expect(r"\(Enter denies\): ")
    return child.before


@pytest.mark.parametrize(
    ("typed", "deleted"), [("o", True), ("always", True), ("", False), ("n", False)]
)
def test_approval_is_answered_with_a_letter(
    hermes: HermesCli, typed: str, *, deleted: bool
) -> None:
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        child.sendline("delete it")
        shown = prompt_text(child)
        assert "rm -rf build" in shown
        assert "to build anew" in shown
        assert "[o]nce / [s]ession / [a]lways / [d]eny" in shown
        child.sendline(typed)
        child.expect_exact("That was it.")
        child.expect_exact(PROMPT)
        assert (hermes.work / "build").exists() is not deleted


def test_unknown_answer_is_asked_again(hermes: HermesCli) -> None:
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        child.sendline("delete it")
        assert prompt_text(child).endswith("[d]eny ")
        child.sendline("yess")
        child.expect_exact("'yess' is not one of the choices.")
        assert "[o]nce / [s]ession / [a]lways / [d]eny " in prompt_text(child)
        assert (hermes.work / "build").exists()
        child.sendline("alwyas")
        child.expect_exact("'alwyas' is not one of the choices.")
        prompt_text(child)
        child.sendline("y")
        child.expect_exact("That was it.")
        child.expect_exact(PROMPT)
        assert not (hermes.work / "build").exists()


def test_ctrl_c_denies_and_interrupts(hermes: HermesCli) -> None:
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        child.sendline("delete it")
        prompt_text(child)
        child.sendintr()
        child.expect_exact("Interrupted.")
        child.expect_exact(PROMPT)
        assert (hermes.work / "build").exists()
        child.sendline("hello")
        child.expect_exact("Plain answer.")


def test_choice_can_be_picked_by_number(hermes: HermesCli) -> None:
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        child.sendline("colour")
        child.expect_exact("2. blue")
        child.expect_exact("> ")
        child.sendline("2")
        child.expect_exact("blue")
        child.expect_exact("That was it.")


def test_yolo_skips_approvals(hermes: HermesCli) -> None:
    with hermes.terminal("--yolo") as child:
        child.expect_exact(PROMPT)
        child.sendline("delete it")
        child.expect_exact("That was it.")
        child.expect_exact(PROMPT)
        assert not (hermes.work / "build").exists()


def test_single_question_asks_at_a_terminal(hermes: HermesCli) -> None:
    with hermes.terminal("-q", "delete it") as child:
        prompt_text(child)
        child.sendline("o")
        child.expect_exact("That was it.")
        child.expect(pexpect.EOF)
        assert exit_status(child) == 0
    assert not (hermes.work / "build").exists()


def test_refused_single_question_says_why_and_fails(hermes: HermesCli) -> None:
    ran = hermes("-z", "delete it")
    assert ran.code == 4
    assert ran.out == "That was it.\n"
    assert "Not done: rm -rf build." in ran.err
    assert "--yolo" in ran.err
    assert (hermes.work / "build").exists()
