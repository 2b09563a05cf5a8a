"""Commands of a session run by codex: branch and compress."""

from pathlib import Path

import pytest

from hermes.app.build import App
from hermes.app.command_services import command_services
from hermes.commands.command import CommandContext
from hermes.commands.registry import standard_commands
from hermes.library import collect
from hermes.schema.errors import UsageError
from hermes.schema.events import Outcome
from hermes.schema.messages import Text
from hermes.schema.terminal import TextReply
from hermes.testing.fake_openai import Call, Reply, Rule, Script, serve
from support.codex_profile import open_codex_profile


async def run_command(app: App, line: str) -> str:
    context = CommandContext(app.conversation, app.models, app, services=command_services(app))
    reply = await standard_commands().run(context, line)
    assert isinstance(reply, TextReply), reply
    return reply.text


async def test_branch_has_codex_history(tmp_path: Path, program: str) -> None:
    run = Reply(calls=[Call("exec_command", {"cmd": "echo hi"})])
    rules = [Rule(contains="go", steps=[run, Reply(text="It says hi.")])]
    script = Script(rules=rules, default=Reply(text="Yes."))
    async with serve(script) as model, open_codex_profile(tmp_path, model.url, program) as app:
        await collect(app, [Text("go")])
        trunk = app.conversation.session.id
        await run_command(app, "/branch another way")
        # Nothing was said in the first branch, so codex has no thread for it.
        await run_command(app, "/branch yet another")
        assert app.conversation.session.id != trunk
        answer = await collect(app, [Text("in the branch")])
        assert answer.ended.outcome is Outcome.DONE, answer.ended
        body = model.requests[-1].body.decode()
        assert '"type":"function_call_output"' in body
        assert body.count("It says hi.") == 1


async def test_compress_compacts_the_codex_thread(tmp_path: Path, program: str) -> None:
    script = Script(default=Reply(text="I will remember."))
    async with serve(script) as model, open_codex_profile(tmp_path, model.url, program) as app:
        await collect(app, [Text("the word is swordfish")])
        model.script.default = Reply(text="The word was swordfish.")
        reply = await run_command(app, "/compress")
        assert "Codex compacted its history from about 15 to" in reply
        (use,) = await app.conversation.usage()
        assert (use.calls, use.usage.input, use.usage.output) == (2, 20, 10)
        answer = await collect(app, [Text("which word?")])
        assert answer.ended.outcome is Outcome.DONE, answer.ended
        body = model.requests[-1].body.decode()
        assert "The word was swordfish." in body
        assert "I will remember." not in body
        for line in ("/compress --preview", "/compress here 2", "/compress the colours"):
            with pytest.raises(UsageError, match="chooses what to keep by itself"):
                await run_command(app, line)
