"""The CLI as a client of a running gateway: same output and codes, few modules loaded."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pexpect
import pytest

from hermes.ipc.client import ConversationOptions, UserInput
from hermes.ipc.protocol import (
    MAX_FIRST_FRAME,
    Accepted,
    ConversationOpened,
    Hello,
    Interrupt,
    Refused,
    RequestFailed,
    ServerFrame,
    StartTurn,
    Wake,
    WakeAccepted,
    encode_frame,
    env_fingerprint,
)
from hermes.ipc.socket_client import open_socket, wake_gateway
from hermes.schema.messages import Text
from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script
from support.cli_process import (
    HERMES_PROGRAM,
    TEST_TIMEOUT,
    CliResult,
    FakeModelProcess,
    Fifo,
    HermesCli,
    without_durations,
)
from support.ipc_server import SERVER_SCRIPT, IpcServerProcess, ipc_server_process

HANG = Fault("hang", after=3)
TREE = "exec 9> ready; echo up >&9; sleep 1000"
SCRIPT = Script(
    rules=[
        Rule("hang", [Reply("first words and then silence", fault=HANG, chunk=6)]),
        Rule("tool please", [
            Reply("Looking.", [Call("terminal", {"command": "echo from-tool"})]),
            Reply("It says from-tool."),
        ]),
        Rule("long job", [Reply("", [Call("terminal", {"command": TREE})])]),
        Rule("wrong key", [Reply(fault=Fault("status", named="unauthorized"))]),
        Rule("at length", [Reply("word " * 400_000, chunk=0)]),
    ],
    default=Reply("Plain answer."),
    models=("mock", "other"),
)  # fmt: skip
PROMPT = "\x1b[1;36m> \x1b[0m"
PROBE = """
import sys
from hermes.cli.main import main
code = main(sys.argv[1:])
print("modules:", *sorted(sys.modules), file=sys.stderr)
sys.exit(code)
"""
HEAVY = {"asyncio", "anyio", "aiohttp", "apsw", "yaml", "logging", "hermes.app", "hermes.session"}


@pytest.fixture
def server(hermes: HermesCli) -> Iterator[IpcServerProcess]:
    with ipc_server_process(hermes) as running:
        yield running


def run_probed(hermes: HermesCli, *arguments: str, **env: str) -> tuple[CliResult, set[str]]:
    """Run the CLI; return its result and the modules it has loaded."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments], cwd=hermes.work, env=hermes.env | env,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TEST_TIMEOUT, check=False,
    )  # fmt: skip
    err, _, modules = done.stderr.rpartition("modules: ")
    return CliResult(done.returncode, done.stdout, err), set(modules.split())


def used_the_gateway(modules: set[str]) -> bool:
    return not HEAVY & modules


def receive(connection: socket.socket) -> ServerFrame | None:
    """Return the next frame, or None after the server closed the connection."""
    data = connection.recv(4, socket.MSG_WAITALL)
    if not data:
        return None
    return msgspec.json.decode(
        connection.recv(int.from_bytes(data, "big"), socket.MSG_WAITALL), type=ServerFrame
    )


@pytest.fixture
def call(hermes: HermesCli, server: IpcServerProcess) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(TEST_TIMEOUT)
        connection.connect(str(hermes.home / "gateway.sock"))
        yield connection


def hello(hermes: HermesCli) -> Hello:
    from hermes import __version__  # noqa: PLC0415

    start = ConversationOptions(cwd=str(hermes.work))
    return Hello(version=__version__, marks=env_fingerprint(hermes.env), start=start)


def open_conversation(connection: socket.socket, hermes: HermesCli) -> str:
    connection.sendall(encode_frame(hello(hermes)))
    assert receive(connection) == Accepted()
    opened = receive(connection)
    assert isinstance(opened, ConversationOpened)
    return opened.state.session


@pytest.mark.parametrize(
    "arguments",
    [
        ("-z", "hello"),
        ("-q", "tool please"),
        ("-q", "tool please", "-Q"),
        ("-c", "-z", "hello"),
        ("-z", "hello", "-m", "other"),
        ("-q", "hello", "--json"),
    ],
)
def test_client_loads_few_modules(
    hermes: HermesCli, server: IpcServerProcess, arguments: tuple[str, ...]
) -> None:
    hermes("-z", "something to go on with")
    ran, modules = run_probed(hermes, *arguments)
    assert ran.code == 0
    assert HEAVY & modules == set()
    assert len(modules) < 200


def test_output_and_codes_are_the_same_with_a_gateway(hermes: HermesCli) -> None:
    lines = (
        ("-z", "hello"),
        ("-q", "tool please"),
        ("-z", "tool please", "-c"),
        ("-z", "wrong key"),
        ("-q", "wrong key"),
        ("-z", "hello", "-r", "nobody"),
        ("-z", "hello", "--provider", "nobody"),
        ("-z", "hello", "--image", "nowhere.png"),
        ("-z", "at length"),
        ("-z", "hello", "--cwd", "/nowhere"),
    )
    alone = [hermes(*arguments) for arguments in lines]
    with ipc_server_process(hermes):
        together = [hermes(*arguments) for arguments in lines]
    for arguments, one, other in zip(lines, alone, together, strict=True):
        assert (arguments, other.code, without_durations(other.out)) == (
            arguments,
            one.code,
            without_durations(one.out),
        )
        assert _without_ids(other.err) == _without_ids(one.err)


def _without_ids(text: str) -> str:
    return " ".join("<id>" if word.count("_") == 2 else word for word in text.split())


def test_events_and_usage_pass_through_the_socket(
    hermes: HermesCli, server: IpcServerProcess, tmp_path: Path
) -> None:
    file = tmp_path / "usage.json"
    ran, modules = run_probed(hermes, "-q", "tool please", "--json", "--usage-file", str(file))
    assert used_the_gateway(modules)
    events = ran.events
    assert (events[0]["type"], events[-1]["type"]) == ("run_started", "run_ended")
    assert events[-1]["outcome"] == "done"
    report = json.loads(file.read_text())
    assert (report["session_id"], report["api_calls"]) == (events[0]["session"], 2)


def test_session_is_continued_with_c_and_r(
    hermes: HermesCli, server: IpcServerProcess, model: FakeModelProcess
) -> None:
    first = hermes("-q", "remember THROUGH-1").err.split()[1]
    hermes("-z", "something else")
    assert hermes("-z", "THROUGH-R", "-r", first).code == 0
    assert "THROUGH-1" in str(model.requests("THROUGH-R")[0])
    assert hermes("-c", "-z", "THROUGH-C").code == 0
    assert "THROUGH-1" in str(model.requests("THROUGH-C")[0])
    (session, *_) = [
        one for one in hermes("sessions", "list", "--json").events if one["id"] == first
    ]
    assert (session["source"], session["cwd"]) == ("cli", str(hermes.work))


@pytest.mark.parametrize(
    ("arguments", "env"),
    [
        (("-z", "hello", "-t", "file"), {}),
        (("-z", "hello", "--max-turns", "3"), {}),
        (("-z", "hello", "--source", "script"), {}),
        (("-z", "hello"), {"OPENAI_API_KEY": "sk-another"}),
        (("-z", "hello"), {"HERMES_WHATEVER": "1"}),
        (("-z", "hello"), {"PATH": "/usr/bin:/bin"}),
        (("-z", "hello"), {"TZ": "Asia/Tokyo"}),
    ],
)
def test_incompatible_request_runs_in_process(
    hermes: HermesCli, server: IpcServerProcess, arguments: tuple[str, ...], env: dict[str, str]
) -> None:
    ran, modules = run_probed(hermes, *arguments, **env)
    assert ran == (0, "Plain answer.\n", "")
    assert not used_the_gateway(modules)


def test_irrelevant_variables_still_use_the_gateway(
    hermes: HermesCli, server: IpcServerProcess
) -> None:
    env = {"TERM": "dumb", "COLORTERM": "x", "SHLVL": "9", "XDG_SESSION_ID": "7", "PWD": "/"}
    assert used_the_gateway(run_probed(hermes, "-z", "hello", **env)[1])


def test_changed_settings_apply_immediately(
    hermes: HermesCli, server: IpcServerProcess, model: FakeModelProcess
) -> None:
    hermes.env.pop("HERMES_INFERENCE_MODEL")
    hermes.configure("model: other\n")
    assert hermes("-z", "hello HEEDED").code == 0
    assert [one["model"] for one in model.requests("hello HEEDED")] == ["other"]


def test_ctrl_c_interrupts_the_turn_in_the_gateway(
    hermes: HermesCli, server: IpcServerProcess, model: FakeModelProcess
) -> None:
    with hermes.running("-q", "hang ONCE") as running:
        running.wait_for("first words")
        ran = running.send_signal(signal.SIGINT)
    assert ran.code == 130
    assert "Interrupted." in ran.out
    assert hermes("-c", "-z", "after ONCE").out == "Plain answer.\n"
    assert "first words" in str(model.requests("after ONCE")[0])


def test_killed_client_cancels_its_turn(
    hermes: HermesCli, server: IpcServerProcess, model: FakeModelProcess
) -> None:
    fifo = Fifo(hermes.work / "ready")
    with hermes.running("-q", "long job KILLED") as running:
        fifo.lines()
        running.send_signal(signal.SIGKILL)
    fifo.wait_released()
    fifo.close()
    # The turn stores its end a moment after its command has died.
    while (ran := hermes("-c", "-z", "after KILLED")).code == 75:
        continue
    assert ran.out == "Plain answer.\n"
    assert "nterrupted" in str(model.requests("after KILLED")[0])


@pytest.mark.parametrize("arguments", [("-q", "hang"), ("-q", "hang", "--json")])
def test_killed_gateway_is_reported(
    hermes: HermesCli, server: IpcServerProcess, arguments: tuple[str, ...]
) -> None:
    with hermes.running(*arguments) as running:
        running.wait_for("first ")
        server.kill()
        out, err = running.process.communicate(timeout=TEST_TIMEOUT)
    assert running.process.returncode == 1
    assert err.decode().startswith(
        "hermes: The gateway closed the connection.\n  The conversation is saved"
    )
    if "--json" in arguments:
        last = json.loads((running.output + out).splitlines()[-1])
        assert (last["type"], last["outcome"], last["code"]) == ("run_ended", "failed", "gateway")
    assert (hermes.home / "gateway.sock").exists()
    ran, modules = run_probed(hermes, "-z", "hello")
    assert ran == (0, "Plain answer.\n", "")
    assert not used_the_gateway(modules)


def test_stopped_gateway_is_reported(hermes: HermesCli, server: IpcServerProcess) -> None:
    with hermes.running("-q", "hang") as running:
        running.wait_for("first ")
        assert server.stop() == 0
        out, err = running.process.communicate(timeout=TEST_TIMEOUT)
    assert running.process.returncode == 1
    assert b"Interrupted." in out
    assert err.endswith(b"hermes: The gateway was stopped.\n  Everything up to now is saved.\n")
    assert not (hermes.home / "gateway.sock").exists()


def test_chat_through_the_gateway(hermes: HermesCli, server: IpcServerProcess) -> None:
    with hermes.terminal() as child:
        child.expect_exact(PROMPT)
        assert f"openai/mock · {hermes.work}" in child.before
        child.sendline("hello")
        child.expect_exact("Plain answer.")
        child.expect_exact(PROMPT)
        child.sendline("/stat\t")
        child.expect_exact("messages")
        child.expect_exact(PROMPT)
        child.sendline("/etc/hosts is a path")
        child.expect_exact("Plain answer.")
        child.expect_exact(PROMPT)
        child.sendline("hang")
        child.expect_exact("first words")
        child.sendintr()
        child.expect_exact("Interrupted.")
        child.expect_exact(PROMPT)
        server.kill()
        child.sendline("hello")
        child.expect_exact("The gateway has stopped; this chat continues without it.")
        child.expect_exact("Plain answer.")
        child.expect_exact(PROMPT)
        child.send("\x04")
        child.expect_exact("Resume: hermes -r ")
        child.expect(pexpect.EOF)
        child.close()
    assert child.exitstatus == 0


def test_only_the_socket_of_a_dead_gateway_is_replaced(hermes: HermesCli) -> None:
    with ipc_server_process(hermes) as first:
        first.kill()
    socket_path = hermes.home / "gateway.sock"
    assert socket_path.exists()
    with ipc_server_process(hermes):
        assert socket_path.stat().st_mode & 0o777 == 0o600
        second = subprocess.run(
            [sys.executable, str(SERVER_SCRIPT)],
            env=hermes.env, capture_output=True, timeout=TEST_TIMEOUT, check=False,
        )  # fmt: skip
        assert b"Another gateway is already listening" in second.stderr
        assert used_the_gateway(run_probed(hermes, "-z", "hello")[1])
    assert list(hermes.home.glob("*gateway.sock*")) == []


def test_home_with_a_long_path_has_a_socket(hermes: HermesCli, tmp_path: Path) -> None:
    hermes.home = tmp_path / ("long" * 30) / "home"
    hermes.home.parent.mkdir()
    hermes.env["HERMES_HOME"] = str(hermes.home)
    with ipc_server_process(hermes):
        ran, modules = run_probed(hermes, "-z", "hello")
    assert ran.out == "Plain answer.\n"
    assert used_the_gateway(modules)


def test_other_user_is_rejected(hermes: HermesCli) -> None:
    with ipc_server_process(hermes, "--uid", str(os.getuid() + 1)):
        assert not wake_gateway(hermes.home)
        ran, modules = run_probed(hermes, "-z", "hello")
    assert ran.out == "Plain answer.\n"
    assert not used_the_gateway(modules)
    assert "rejected a local connection" in (hermes.home / "logs/agent.log").read_text()


def test_wake_opens_no_conversation(hermes: HermesCli, server: IpcServerProcess) -> None:
    assert wake_gateway(hermes.home)
    server.expect("woken")
    assert hermes("sessions", "list", "--json").events == []
    server.stop()
    assert not wake_gateway(hermes.home)


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\x05hello",
        b'\0\0\0\x11{"type":"nobody"}',
        b"\0\0\0\0",
        (MAX_FIRST_FRAME + 1).to_bytes(4, "big"),
        b"\xff\xff\xff\xff",
        encode_frame(Interrupt()),
    ],
)
def test_invalid_frame_is_answered_and_the_server_continues(
    hermes: HermesCli, call: socket.socket, data: bytes
) -> None:
    call.sendall(data)
    answer = receive(call)
    assert isinstance(answer, RequestFailed)
    assert answer.trouble.code == "bad_frame"
    assert receive(call) is None
    assert wake_gateway(hermes.home)


@pytest.mark.parametrize("data", [b"\0\0\0\x01{", b"\xff\xff\xff\xff"])
def test_invalid_frame_during_a_turn_ends_it(
    hermes: HermesCli, call: socket.socket, data: bytes
) -> None:
    open_conversation(call, hermes)
    call.sendall(encode_frame(StartTurn(UserInput((Text("hang"),)))) + data)
    kinds: list[str] = []
    while (answer := receive(call)) is not None:
        kinds.append(type(answer).__name__)
    assert "RequestFailed" in kinds
    assert kinds[-1] == "TurnEnded"
    assert wake_gateway(hermes.home)


def test_concurrent_requests_are_rejected(hermes: HermesCli, call: socket.socket) -> None:
    open_conversation(call, hermes)
    call.sendall(2 * encode_frame(StartTurn(UserInput((Text("hang"),)))))
    answers: list[ServerFrame] = []
    while (answer := receive(call)) is not None:
        answers.append(answer)
    assert any(isinstance(one, RequestFailed) and one.trouble.code == "usage" for one in answers)


def test_other_version_is_refused(hermes: HermesCli, call: socket.socket) -> None:
    call.sendall(encode_frame(msgspec.structs.replace(hello(hermes), version="0.0.0")))
    assert isinstance(receive(call), Refused)
    assert receive(call) is None


def test_many_concurrent_clients_are_served(hermes: HermesCli, server: IpcServerProcess) -> None:
    calls = [socket.socket(socket.AF_UNIX) for _ in range(200)]
    for one in calls:
        one.settimeout(TEST_TIMEOUT)
        one.connect(str(hermes.home / "gateway.sock"))
        one.sendall(encode_frame(hello(hermes)))
    for one in calls:
        assert receive(one) == Accepted()
        assert isinstance(receive(one), ConversationOpened)
    for one in calls[:50]:
        one.sendall(encode_frame(StartTurn(UserInput((Text("hello from many"),)))))
    for one in calls[:50]:
        while type(answer := receive(one)).__name__ == "EventFrame":
            continue
        assert type(answer).__name__ == "TurnEnded"
    with open_socket(hermes.home) as sender:
        assert sender is not None
        sender.send(Wake())
        assert sender.receive() == WakeAccepted()
    for one in calls:
        one.close()
    assert hermes("-z", "hello").out == "Plain answer.\n"


def test_suspended_reader_misses_nothing(hermes: HermesCli, server: IpcServerProcess) -> None:
    with subprocess.Popen(
        [HERMES_PROGRAM, "-q", "at length"], cwd=hermes.work, env=hermes.env,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.read(1) == b"w"
        process.send_signal(signal.SIGSTOP)
        assert wake_gateway(hermes.home)
        process.send_signal(signal.SIGCONT)
        rest = process.stdout.read()
    assert b"w" + rest == b"word " * 400_000 + b"\n"


def test_silent_connections_do_not_block_others(
    hermes: HermesCli, server: IpcServerProcess
) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(open_socket(hermes.home)) for _ in range(300)]
        assert None not in silent
        assert wake_gateway(hermes.home)
        server.expect("woken")
        assert hermes("-z", "hello").out == "Plain answer.\n"
