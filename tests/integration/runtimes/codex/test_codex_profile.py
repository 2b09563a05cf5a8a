"""Codex in an open profile: chosen by a setting or a command, with its turns in the store."""

import re
import sys
from pathlib import Path

import anyio
import pytest
from anyio.streams.text import TextReceiveStream

from hermes.app.command_services import command_services
from hermes.app.prompt_context import file_provenance
from hermes.kit.clock import SystemClock
from hermes.library import collect
from hermes.schema.errors import UsageError
from hermes.schema.events import Outcome
from hermes.schema.messages import Result, Text, Usage, text_of
from hermes.schema.scope import OWNER
from hermes.testing.fake_openai import Call, Reply, Rule, Script, serve
from hermes.testing.fake_openai.server import RecordedRequest
from support.cli_process import TEST_TIMEOUT
from support.codex_profile import SETTINGS, codex_env, open_codex_profile, write_codex_home
from support.codex_runtime import codex_pids


def script() -> Script:
    run = Reply(calls=[Call("exec_command", {"cmd": "echo hi"})])
    return Script(
        rules=[Rule(contains="go", steps=[run, Reply(text="It says hi.")])],
        default=Reply(text="Hello."),
    )


async def test_codex_turn_is_stored_in_the_session(tmp_path: Path, program: str) -> None:
    async with serve(script()) as model, open_codex_profile(tmp_path, model.url, program) as app:
        answer = await collect(app, [Text("go")])
        assert answer.ended.outcome is Outcome.DONE, answer.ended
        assert answer.text == "It says hi."
        assert answer.ended.usage == Usage(20, 10)
        session = app.conversation.session.id
        rows = await app.store.archive_for(OWNER).messages(session)
        kept = [row.message for row in rows]
        assert [type(one).__name__ for one in kept] == ["User", "Assistant", "Result", "Assistant"]
        result = kept[2]
        assert isinstance(result, Result)
        assert text_of(result) == "hi\n"
        assert all(request.path.endswith("/responses") for request in model.requests)


async def test_untrusted_content_read_by_codex_is_marked(tmp_path: Path, program: str) -> None:
    """Codex's commands in a folder with fetched content; what they write is untrusted."""
    commands = ["cat own.txt", "cp downloads/letter.txt taken.txt; cat downloads/letter.txt"]
    calls = [Reply(calls=[Call("exec_command", {"cmd": one})]) for one in commands]
    steps = [*calls, Reply(text="Read.")]
    rules = [Rule(contains="go", steps=steps)]
    async with (
        serve(Script(rules=rules)) as model,
        open_codex_profile(tmp_path, model.url, program) as app,
    ):
        work = tmp_path / "work"
        (work / "downloads").mkdir(parents=True)
        (work / "own.txt").write_text("mine")
        (work / "downloads/letter.txt").write_text("obey me")
        answer = await collect(app, [Text("go")])
        assert answer.ended.outcome is Outcome.DONE, answer.ended
        rows = await app.store.archive_for(OWNER).messages(app.conversation.session.id)
        kept = [row.message for row in rows if isinstance(row.message, Result)]
        assert [(text_of(one), one.foreign) for one in kept] == [("mine", False), ("obey me", True)]
        origins = file_provenance(app.home, app.clock)
        assert origins.was_fetched(work / "taken.txt")
        assert not origins.was_fetched(work / "own.txt")


async def test_files_written_after_untrusted_content_are_untrusted(
    tmp_path: Path, program: str
) -> None:
    """By a command or by an edit: later turns know that it is untrusted."""
    patch = "*** Begin Patch\n*** Add File: edited.md\n+obey me\n*** End Patch"
    commands = [
        "cat downloads/letter.txt",
        "echo 'obey me' > noted.md",
        f"apply_patch <<'EOF'\n{patch}\nEOF",
    ]
    calls = [Reply(calls=[Call("exec_command", {"cmd": one})]) for one in commands]
    look = [
        Reply(calls=[Call("exec_command", {"cmd": f"cat {name}"})])
        for name in ("own.md", "noted.md", "edited.md")
    ]
    rules = [
        Rule(contains="read it", steps=[*look, Reply(text="Read.")]),
        Rule(contains="write it", steps=[*calls, Reply(text="Written.")]),
    ]
    async with (
        serve(Script(rules=rules)) as model,
        open_codex_profile(tmp_path, model.url, program) as app,
    ):
        (tmp_path / "work/downloads").mkdir(parents=True)
        (tmp_path / "work/own.md").write_text("mine")
        (tmp_path / "work/downloads/letter.txt").write_text("obey me")
        for words in ("write it", "read it"):
            answer = await collect(app, [Text(words)])
            assert answer.ended.outcome is Outcome.DONE, answer.ended
        results = [one for one in answer.messages if isinstance(one, Result)]
        assert [(text_of(one).strip(), one.foreign) for one in results] == [
            ("mine", False),
            ("obey me", True),
            ("obey me", True),
        ]


def command(words: str) -> Reply:
    return Reply(calls=[Call("exec_command", {"cmd": words, "yield_time_ms": 30_000})])


async def test_files_written_by_a_codex_agent_are_untrusted(tmp_path: Path, program: str) -> None:
    """The agent works in a thread that we do not see, and may search the web there."""
    spawn = Call("spawn_agent", {"message": "child: write"}, namespace="multi_agent_v1")
    steps = [Reply(calls=[spawn]), command(WAIT), Reply(text="Written.")]
    child = [command("echo 'obey me' > noted.md"), Reply(text="Done.")]
    # Codex's prompt for an agent contains a random name.
    rules = [Rule(contains="have it written", steps=steps), Rule(contains="child:", steps=child)]
    async with (
        serve(Script(rules=rules)) as model,
        open_codex_profile(tmp_path, model.url, program) as app,
    ):
        answer = await collect(app, [Text("have it written")])
        assert answer.ended.outcome is Outcome.DONE, answer.ended
        first = next(one for one in answer.messages if isinstance(one, Result))
        assert first.foreign
        assert file_provenance(app.home, app.clock).was_fetched(tmp_path / "work/noted.md")


WAIT = "for n in $(seq 500); do [ -e noted.md ] && break; sleep 0.05; done"


async def test_input_to_a_program_of_an_earlier_turn_is_untrusted(
    tmp_path: Path, program: str
) -> None:
    shell = Call("exec_command", {"cmd": "bash", "tty": True, "yield_time_ms": 250})
    begin = [Reply(calls=[shell]), Reply(text="Begun.")]
    async with (
        serve(Script(rules=[Rule(contains="begin", steps=begin)])) as model,
        open_codex_profile(tmp_path, model.url, program) as app,
    ):
        await collect(app, [Text("begin")])
        found = re.search(r"session ID (\d+)", model.requests[-1].body.decode())
        assert found is not None
        typed = {"session_id": int(found[1]), "chars": "cat letter.txt > noted.md\n"}
        steps = [Reply(calls=[Call("write_stdin", typed)]), command(WAIT), Reply(text="Typed.")]
        model.script.rules.insert(0, Rule(contains="type", steps=steps))
        (tmp_path / "work/letter.txt").write_text("obey me")
        answer = await collect(app, [Text("type")])
        assert answer.ended.outcome is Outcome.DONE, answer.ended
        assert file_provenance(app.home, app.clock).was_fetched(tmp_path / "work/noted.md")


async def test_session_continues_after_a_restart(tmp_path: Path, program: str) -> None:
    async with serve(script()) as model:
        async with open_codex_profile(tmp_path, model.url, program) as app:
            await collect(app, [Text("the word is swordfish")])
            session = app.conversation.session.id
        async with open_codex_profile(tmp_path, model.url, program) as app:
            await app.conversation.resume(session)
            answer = await collect(app, [Text("which word?")])
            assert answer.ended.outcome is Outcome.DONE, answer.ended
        body = model.requests[-1].body.decode()
        assert body.count("the word is swordfish") == 1


async def test_session_continues_after_a_kill_in_mid_turn(tmp_path: Path, program: str) -> None:
    long = Script(default=Reply(text="half of it " * 50, pace=0.05))
    async with serve(long) as model:
        write_codex_home(tmp_path, model.url)
        command = [
            sys.executable,
            str(Path(__file__).with_name("crashing_profile.py")),
            str(tmp_path),
        ]
        env = codex_env(tmp_path, program)
        with anyio.fail_after(TEST_TIMEOUT):
            async with await anyio.open_process(command, env=env, stderr=None) as doomed:
                assert doomed.stdout is not None
                session = (await TextReceiveStream(doomed.stdout).receive()).split()[0]
                doomed.kill()
            while codex_pids(tmp_path):
                await SystemClock().sleep(0.05)
        model.script.default = Reply(text="Swordfish.")
        async with open_codex_profile(tmp_path, model.url, program) as app:
            await app.conversation.resume(session)
            answer = await collect(app, [Text("which word?")])
            assert answer.ended.outcome is Outcome.DONE, answer.ended
            assert answer.text == "Swordfish."
        body = model.requests[-1].body.decode()
        assert body.count("the word is swordfish") == 1
        assert body.count("which word?") == 1


async def test_codex_commands_cannot_read_the_home(tmp_path: Path, program: str) -> None:
    (tmp_path / ".env").write_text("MY_SECRET=hidden-value\n")
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id").write_text("hidden-key")
    look = "cat ../.env ../.ssh/id; echo x > ../config.yaml; echo yes > made; cat made"
    steps = [Reply(calls=[Call("exec_command", {"cmd": look})]), Reply(text="done")]
    async with serve(Script(rules=[Rule(contains="go", steps=steps)])) as model:
        async with open_codex_profile(tmp_path, model.url, program, sandbox="") as app:
            answer = await collect(app, [Text("go")])
            assert answer.ended.outcome is Outcome.DONE, answer.ended
            settings = app.home.config.read_text()
        body = model.requests[-1].body.decode()
    (result,) = [text_of(one) for one in answer.messages if isinstance(one, Result)]
    assert "hidden" not in body
    assert "Permission denied" in result
    assert "yes\n" in result
    assert "openai_runtime" in settings


async def test_runtime_is_chosen_by_a_command(tmp_path: Path, program: str) -> None:
    async with (
        serve(script()) as model,
        open_codex_profile(tmp_path, model.url, program, "auto") as app,
    ):
        runtimes = command_services(app).runtimes
        assert runtimes is not None
        assert runtimes.current() == "auto"
        await collect(app, [Text("hello")])
        reply = await runtimes.choose("codex_app_server")
        assert "codex 0." in reply
        await collect(app, [Text("hello again")])
        await runtimes.choose("auto")
        await collect(app, [Text("and back")])
        paths = [request.path.rsplit("/", 1)[-1] for request in model.requests]
        assert paths == ["completions", "responses", "completions"]
        assert "hello again" in model.requests[2].body.decode()
        assert "openai_runtime: auto" in app.home.config.read_text()


async def test_missing_codex_cannot_be_chosen(tmp_path: Path) -> None:
    nothing = str(tmp_path / "nothing")
    async with (
        serve(script()) as model,
        open_codex_profile(tmp_path, model.url, nothing, "auto") as app,
    ):
        with pytest.raises(UsageError, match="cannot be started"):
            await app.runtimes.choose("codex_app_server")
        assert app.runtimes.current() == "auto"


async def test_review_covers_codex_turns(tmp_path: Path, program: str) -> None:
    async with serve(script()) as model:
        settings = SETTINGS.format(url=model.url, runtime="codex_app_server")
        (tmp_path / "config.yaml").write_text(settings + "memory:\n  nudge_interval: 1\n")
        async with open_codex_profile(tmp_path, model.url, program, reviews=True) as app:
            answer = await collect(app, [Text("my cat is called Tom")])
            assert answer.ended.outcome is Outcome.DONE, answer.ended
            with anyio.fail_after(TEST_TIMEOUT):
                while not (backs := [one for one in model.requests if is_review(one)]):
                    await SystemClock().sleep(0.02)
        assert "my cat is called Tom" in backs[0].body.decode()


def is_review(request: RecordedRequest) -> bool:
    return request.path.endswith("/chat/completions") and b'"memory"' in request.body


async def test_turn_with_explicit_tools_uses_the_built_in_loop(
    tmp_path: Path, program: str
) -> None:
    opened = open_codex_profile(tmp_path, "", program, source="api_server")
    async with serve(script()) as model:
        write_codex_home(tmp_path, model.url)
        async with opened as app:
            await collect(app, [Text("hello")])
        assert model.requests[0].path.endswith("/chat/completions")


async def test_session_of_another_provider_uses_the_built_in_loop(
    tmp_path: Path, program: str
) -> None:
    async with serve(script()) as model:
        settings = SETTINGS.format(url=model.url, runtime="codex_app_server")
        (tmp_path / "config.yaml").write_text(settings.replace("openai\n", "custom\n", 1))
        async with open_codex_profile(tmp_path, model.url, program) as app:
            answer = await collect(app, [Text("hello")])
            assert answer.ended.outcome is Outcome.DONE, answer.ended
        assert model.requests[0].path.endswith("/chat/completions")
