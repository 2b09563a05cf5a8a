"""The line-mode chat at a real terminal."""

import os
import re
import signal
import subprocess

import pexpect
import pytest

from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script
from support.cli_process import FakeModelProcess, Fifo, HermesCli, without_durations

PROMPT = "\x1b[1;36m> \x1b[0m"
MORE = "\x1b[1;36m… \x1b[0m"
HANG = Fault("hang", after=3)
STUBBORN = "trap '' TERM INT HUP; exec 9> ready; echo up >&9; while :; do sleep 1000; done"
STEPS = "echo step one; echo go > ready; read answer < answer; echo step two; exit 3"
IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@example.org")
TODOS = [
    {"id": "1", "content": "count", "status": "completed"},
    {"id": "2", "content": "rest", "status": "pending"},
]
SCRIPT = Script(
    rules=[
        Rule("AGENTS.md", [Reply("I wrote it.")]),
        Rule("hang", [Reply("first words and then silence", fault=HANG, chunk=6)]),
        Rule("stubborn", [Reply("", [Call("terminal", {"command": STUBBORN})])]),
        Rule("slow tool", [Reply("", [Call("terminal", {"command": STEPS})]), Reply("It failed.")]),
        Rule("write", [
            Reply("Writing.", [Call("write_file", {"path": "a.txt", "content": "one\ntwo\n"})]),
            Reply("", [Call("read_file", {"path": "a.txt"}), Call("read_file", {"path": "no"})]),
            Reply("Written."),
        ]),
        Rule("count", [
            Reply("", [Call("terminal", {"command": "seq 30"}), Call("todo", {"todos": TODOS})]),
            Reply("Counted."),
        ]),
        Rule("reason", [Reply("The answer.", reasoning="A thought.")]),
        Rule("wrong key", [Reply(fault=Fault("status", named="unauthorized"))]),
    ],
    default=Reply("Plain answer."),
    models=("mock", "other"),
)  # fmt: skip


def say(child: pexpect.spawn, line: str, prompt: str = PROMPT) -> str:
    """Type a line and return the output up to the next prompt."""
    child.sendline(line)
    child.expect_exact("\r\n")
    child.expect_exact(prompt)
    return without_escapes(child.before)


def without_escapes(text: str) -> str:
    """The text without colours and erased hints."""
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zJl]", "", text).replace("\r\n", "\n").split("\n")
    return "\n".join(re.split(r"\x1b\[K", line)[-1].strip("\r") for line in lines).strip()


def quit_chat(child: pexpect.spawn) -> int | None:
    child.expect(pexpect.EOF)
    child.close()
    return child.exitstatus


def test_chat_from_greeting_to_exit(hermes: HermesCli, model: FakeModelProcess) -> None:
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        greeting = without_escapes(child.before)
        assert greeting.splitlines()[0] == f"hermes · openai/mock · {hermes.work}"
        assert "/help" in greeting
        assert say(child, "hello INTERACTIVE") == "Plain answer."
        assert say(child, "") == ""
        assert say(child, "   ") == ""
        assert say(child, "reason about it") == "A thought.\nThe answer."
        assert say(child, "one\\", MORE) == ""
        assert say(child, "two") == "Plain answer."
        assert model.requests("INTERACTIVE")[-1]["messages"][-1]["content"] == "one\ntwo"
        child.sendeof()
        child.expect_exact("Resume: hermes -r ")
        assert quit_chat(child) == 0
    (session,) = hermes("sessions", "list", "--json").events
    assert session["id"] in child.before
    history = hermes.home / "cli_history"
    assert history.read_text().splitlines()[:2] == ["hello INTERACTIVE", "reason about it"]
    assert history.stat().st_mode & 0o777 == 0o600


def test_tool_calls_are_shown(hermes: HermesCli) -> None:
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        shown = without_durations(say(child, "write a file")).splitlines()
    assert shown[:8] == [
        "Writing.",
        "● write_file a.txt",
        "  ✓ +2 -0",
        "    1 +one",
        "    2 +two",
        "● read_file a.txt",
        "● read_file no",
        "  ✓ read_file a.txt · a.txt: 2 lines",
    ]
    assert shown[8].startswith(f"  ✗ {hermes.work}"[:60])
    assert shown[9:] == ["Written."]
    assert max(map(len, shown)) <= 80
    assert (hermes.work / "a.txt").read_text() == "one\ntwo\n"


def test_output_of_a_running_command_is_shown(hermes: HermesCli, fifo: Fifo) -> None:
    answer = Fifo(hermes.work / "answer")
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        child.sendline("slow tool")
        child.expect_exact("terminal echo step one")
        assert fifo.lines() == ["go"]
        child.expect_exact("step one\x1b[0m")
        answer.path.write_text("go on\n")
        child.expect_exact("exit code 3")
        child.expect_exact("step one")
        child.expect_exact("step two")
        child.expect_exact("It failed.")
        child.expect_exact(PROMPT)
    answer.close()


def test_slash_commands_show_and_change_state(hermes: HermesCli, model: FakeModelProcess) -> None:
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        assert say(child, "/usage") == "This session has used no tokens yet."
        assert say(child, "/undo").startswith("hermes: There is nothing to undo.")
        say(child, "hello COMMANDS")
        help_lines = say(child, "/help").splitlines()
        named = {line.split()[0] for line in help_lines}
        wanted = "new resume retry undo model status usage stop help quit"
        assert named >= {f"/{name}" for name in wanted.split()}
        status = say(child, "/status")
        assert re.search(rf"directory +{hermes.work}", status)
        assert re.search(r"messages +2", status)
        assert "openai/mock: 1 call, 10 tokens in, 5 out" in say(child, "/usage")
        assert say(child, "/stop") == "Nothing is running."
        assert say(child, "/model").startswith("The model is openai/mock.")
        assert say(child, "/model other --force").startswith("Using openai/other, ")
        assert say(child, "/retry") == "> hello COMMANDS\nPlain answer."
        assert [one["model"] for one in model.requests("hello COMMANDS")] == ["mock", "other"]
        assert "hello COMMANDS" in say(child, "/undo")
        assert say(child, "/history") == "The conversation is empty."
        assert "Unknown command: /frob" in say(child, "/frob")
        assert "Did you mean /model?" in say(child, "/modl")
        assert say(child, "/etc/hosts is a path") == "Plain answer."
        child.sendline("/quit")
        assert quit_chat(child) == 0


def test_long_output_and_todo_list_can_be_seen_again(hermes: HermesCli) -> None:
    with hermes.terminal(PAGER="sh -c 'wc -l; echo paged'") as child:
        child.expect_exact(PROMPT)
        output = say(child, "count")
        assert "… 20 lines; /output shows them …" in output
        assert output.endswith("Counted.\nTodo · 1 of 2 done · next: rest")
        assert say(child, "/output").split() == ["30", "paged"]
        assert say(child, "/output 2") == "hermes: There are not that many long outputs."
        child.sendeof()
        assert quit_chat(child) == 0
    with hermes.terminal("-c") as child:
        child.expect_exact(PROMPT)
        assert "Todo · 1 of 2 done · next: rest" in without_escapes(child.before)
        assert "Todo" not in say(child, "/new")
        assert "Todo" not in say(child, "hello")
        assert say(child, "/resume count").endswith("Todo · 1 of 2 done · next: rest")


def test_commands_about_the_workspace(hermes: HermesCli, model: FakeModelProcess) -> None:
    hermes.work.mkdir(parents=True, exist_ok=True)
    file = hermes.work / "a.py"
    file.write_text("one\ntwo\n")
    for words in (["init", "-q"], ["add", "a.py"], [*IDENTITY, "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=hermes.work, env=hermes.env, check=True)
    file.write_text("one\nzwei\n")
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        assert say(child, "/diff").splitlines()[-3:] == ["1  one", "2 -two", "2 +zwei"]
        output = say(child, "/init the tests")
        assert output == "Reading the project to write its AGENTS.md.\nI wrote it."
        assert "openai/mock: 1 call" in say(child, "/cost")
        assert say(child, "/export kept.md").endswith("/kept.md.")
        assert "colors of the terminal" in say(child, "/theme light")
        child.sendeof()
        assert quit_chat(child) == 0
    assert "Pay attention to this: the tests" in str(model.requests("/init the tests"))
    assert "I wrote it." in (hermes.work / "kept.md").read_text()
    with hermes.terminal("-c") as child:
        child.expect_exact(PROMPT)
        recap = without_escapes(child.before)
    assert "/init the tests" in recap
    assert "Write an AGENTS.md" not in recap


def test_new_and_resume_switch_the_session(hermes: HermesCli) -> None:
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        say(child, "hello first")
        first = re.search(r"session +(\S+)", say(child, "/status")).group(1)
        say(child, "/title One")
        assert first not in say(child, "/new Two")
        say(child, "hello second")
        assert say(child, "/resume One").splitlines() == [
            f"Resumed session {first} “One”, 2 messages.",
            "you: hello first",
            "hermes: Plain answer.",
        ]
        assert "There is no session 'nope'." in say(child, "/resume nope")
        assert first in say(child, "/status")
    assert {one["title"] for one in hermes("sessions", "list", "--json").events} == {"One", "Two"}


def test_resumed_session_shows_a_recap(hermes: HermesCli) -> None:
    hermes("-z", "hello before")
    with hermes.terminal("-c") as child:
        child.expect_exact(PROMPT)
        assert without_escapes(child.before).splitlines()[2:] == [
            "you: hello before",
            "hermes: Plain answer.",
        ]


def test_ctrl_c_ends_turn_then_chat(hermes: HermesCli, model: FakeModelProcess) -> None:
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        child.sendline("hang TWICE")
        child.expect_exact("first words")
        child.sendintr()
        child.expect_exact("Interrupted.")
        child.expect_exact(PROMPT)
        assert say(child, "and now") == "Plain answer."
        assert "first words" in str(model.requests("TWICE")[-1])
        child.sendline("hang again")
        child.expect_exact("first words")
        child.sendintr()
        child.expect_exact(PROMPT)
        child.sendintr()
        child.expect_exact("Resume: hermes -r ")
        assert quit_chat(child) == 130


def test_ctrl_c_at_the_prompt_clears_then_warns_then_exits(hermes: HermesCli) -> None:
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        child.send("half a li")
        child.expect_exact("half a li")
        child.sendintr()
        child.expect_exact(PROMPT)
        assert "Ctrl+C again" not in child.before
        assert say(child, "hello") == "Plain answer."
        child.sendintr()
        child.expect_exact("Ctrl+C again")
        child.expect_exact(PROMPT)
        assert say(child, "hello") == "Plain answer."
        child.sendintr()
        child.expect_exact("Ctrl+C again")
        child.expect_exact(PROMPT)
        child.sendintr()
        assert quit_chat(child) == 130


def test_second_ctrl_c_exits_despite_hanging_tool(hermes: HermesCli, fifo: Fifo) -> None:
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        child.sendline("something stubborn")
        fifo.lines()
        child.sendintr()
        child.expect_exact("Ctrl+C again to exit immediately.")
        child.sendintr()
        assert quit_chat(child) == 130
    fifo.wait_released()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_terminated_chat_ends_cleanly(
    hermes: HermesCli, model: FakeModelProcess, number: signal.Signals
) -> None:
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        child.kill(number)
        assert quit_chat(child) == 128 + number
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        child.sendline(f"hang {number.name}")
        child.expect_exact("first words")
        child.kill(number)
        assert quit_chat(child) == 128 + number
    hermes("-c", "-z", f"after {number.name}")
    assert "first words" in str(model.requests(f"after {number.name}")[0])


def test_failed_turn_does_not_end_the_chat(hermes: HermesCli) -> None:
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        assert "key" in say(child, "wrong key")
        assert say(child, "/undo").startswith("Undid 1 turn")
        assert say(child, "hello") == "Plain answer."


def test_warnings_are_shown_once_without_a_model(hermes: HermesCli) -> None:
    hermes.configure("modle: x\n")
    hermes.env["HERMES_INFERENCE_PROVIDER"] = "nobody"
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        assert "no model yet" in child.before
        assert "modle" in child.before
        assert "Unknown provider: 'nobody'." in say(child, "hello")
        assert say(child, "/model mock --provider openai").startswith("Using openai/mock")
        assert say(child, "hello") == "Plain answer."


def test_chat_that_cannot_start_gives_a_reason(hermes: HermesCli) -> None:
    hermes.configure("agent: [\n")
    with hermes.terminal() as child:
        child.expect_exact("config.yaml, line 2, ")
        assert quit_chat(child) == 78
    with hermes.terminal("-r", "nobody", HERMES_HOME=f"{hermes.home}2") as child:
        child.expect_exact("There is no session 'nobody'.")
        assert quit_chat(child) == 1


def test_history_and_completion_work(hermes: HermesCli) -> None:
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        say(child, "remember me")
    with hermes.terminal(NO_COLOR="1") as child:
        child.expect_exact("> ")
        child.send("\x1b[A")
        child.expect_exact("remember me")
        child.send("\x15/usa\t")
        child.expect_exact("/usage ")
        child.sendline("")
        child.expect_exact("This session has used no tokens")
        (hermes.work / "beds.txt").touch()
        child.send("see @be\t")
        child.expect_exact("file:beds.txt ")


def test_pasted_lines_are_one_message(hermes: HermesCli, model: FakeModelProcess) -> None:
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        child.send("\x1b[200~PASTED one\ntwo\nthree\x1b[201~")
        child.expect_exact("three")
        child.sendline("")
        child.expect_exact("Plain answer.")
        child.expect_exact(PROMPT)
    assert model.requests("PASTED")[0]["messages"][-1]["content"] == "PASTED one\ntwo\nthree"


def test_typed_invalid_utf8_is_tolerated(hermes: HermesCli) -> None:
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        os.write(child.child_fd, b"raw \xff byte\r")
        child.expect_exact("Plain answer.")
        child.expect_exact(PROMPT)


def test_shell_command_and_image_go_with_the_next_message(
    hermes: HermesCli, model: FakeModelProcess
) -> None:
    (hermes.work / "dot.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(24))
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        assert say(child, "!echo from the shell; exit 3") == "from the shell\n(exit code 3)"
        assert say(child, "SHELL what is @file:dot.png?") == "Plain answer."
        assert say(child, "SHELL and now?") == "Plain answer."
    first, second = model.requests("SHELL")
    parts = first["messages"][-1]["content"]
    assert [part["type"] for part in parts].count("image_url") == 1
    text = "\n".join(part.get("text", "") for part in parts)
    assert text.startswith("SHELL what is [image 1: dot.png]?")
    assert "$ echo from the shell; exit 3\nfrom the shell\n(exit code 3)" in text
    assert second["messages"][-1]["content"] == "SHELL and now?"
