"""Background commands and the editor at a real terminal."""

from pathlib import Path

import anyio

from hermes.app.followup_router import FollowupRouter
from hermes.bus.memory import MemoryBus
from hermes.kit.clock import SystemClock
from hermes.schema.scope import Scope
from hermes.store.sqlite import open_store
from hermes.testing.fake_openai.script import Fault, Reply, Rule, Script
from support.cli_process import HermesCli, fake_model_process

SCRIPT = Script(
    rules=[
        Rule("1 lost", [Reply("It was lost.")]),
        Rule("has ended", [Reply("The report says 42.")]),
        Rule("never ends", [Reply("First words", fault=Fault("hang", after=1))]),
        Rule("count the lines", [Reply("There are 42 lines.")]),
        Rule("Dear all", [Reply("A nice letter.")]),
    ]
)
PROMPT = "\x1b[1;36m> \x1b[0m"
EDITOR = '#!/bin/sh\necho "and so on" >> "$1"\n'


def test_background_command_and_editor(tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text(EDITOR)
    editor.chmod(0o700)
    with fake_model_process(tmp_path / "model", SCRIPT) as model:
        hermes = HermesCli(tmp_path, model.url)
        with hermes.terminal(VISUAL=str(editor)) as child:
            child.expect_exact("Type a message")
            # Before the first message: its result starts the session.
            child.sendline("/bg count the lines")
            child.expect_exact("Started ")
            child.expect_exact("1 of 1 completed: “count the lines”.")
            child.expect_exact("The report says 42.")
            child.sendline("/prompt Dear all,")
            child.expect_exact("A nice letter.")
            child.sendline("/ts on")
            child.expect_exact("Timestamps on.")
            child.sendline("/sb")
            child.expect_exact("The line-mode chat has no status bar.")
            child.sendline("/quit")
            child.expect_exact("Resume: hermes")
        (letter,) = model.requests("and so on")[:1]
        assert letter["messages"][-1]["content"] == "Dear all,\nand so on"


def test_quitting_warns_of_background_work_and_resuming_reports_its_loss(tmp_path: Path) -> None:
    with fake_model_process(tmp_path / "model", SCRIPT) as model:
        hermes = HermesCli(tmp_path, model.url)
        with hermes.terminal() as child:
            child.expect_exact("Type a message")
            child.sendline("/bg what never ends")
            child.expect_exact("Started ")
            for leave in ("\x03", "/quit\r"):
                child.expect_exact(PROMPT)
                child.sendline("/agents")
                child.expect_exact("1 background task running")
                child.expect_exact(PROMPT)
                child.send(leave)
                child.expect_exact("1 background task is still running; quitting ends it.")
            child.expect_exact(PROMPT)
            child.send("\x04")
            child.expect(r"Resume: hermes -r (\w+)")
            session = child.match[1]
        with hermes.terminal("-r", session) as child:
            child.expect_exact("0 of 1 completed, 1 lost: “what never ends”.")
            child.expect_exact("It was lost.")
            child.expect_exact(PROMPT)
            child.send("\x04")
            child.expect_exact("Resume: hermes")
        # Another process may be the first to notice that work is lost.
        anyio.run(store_report, hermes, session)
        assert f"1 report of finished work (hermes -r {session})" in hermes("status").out
        with hermes.terminal("-r", session) as child:
            child.expect_exact("The report says 42.")


async def store_report(hermes: HermesCli, session: str) -> None:
    async with open_store(hermes.home / "hermes.db", SystemClock()) as store:
        scope = Scope("default", session, "", str(hermes.work), source="cli")
        await store.commit(*FollowupRouter(store, MemoryBus()).rows(scope, "dlg", "It has ended."))
