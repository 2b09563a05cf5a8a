"""After a kill, a turn is shown as interrupted, and a failed one as failed."""

import json
from pathlib import Path

from anyio.to_thread import run_sync

from hermes.session.recap import INTERRUPTED, UNANSWERED
from support.chat_platform.model import REFUSED
from support.cli_process import TEST_TIMEOUT
from support.preloaded_python import run_python_text
from support.restarted_gateway import restarted_gateway

FAILED, KILLED = "q-1 fail:model", "q-2 hang:model"


def hermes(folder: Path, *args: str) -> str:
    env = {"HOME": str(folder), "HERMES_HOME": str(folder / "home"), "COLUMNS": "200"}
    done = run_python_text(["-m", "hermes", "sessions", *args], env=env, timeout=TEST_TIMEOUT)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_only_interrupted_turn_is_shown_as_interrupted(tmp_path: Path) -> None:
    async with restarted_gateway(tmp_path) as chat:
        async with chat.run():
            chat.say(FAILED)
            await chat.wait_for_post(REFUSED)
            chat.say(KILLED)
            await chat.wait_for_question(KILLED)
        listed = await run_sync(hermes, tmp_path, "list", "--json")
        session = json.loads(listed.splitlines()[0])["id"]
        shown = await run_sync(hermes, tmp_path, "show", session)
        assert shown.count(INTERRUPTED) == 1
        assert shown.index(FAILED) < shown.index(KILLED) < shown.index(INTERRUPTED)
        async with chat.run():
            # It is resumed automatically and hangs again.
            await chat.wait_for_question(KILLED, 2)
            chat.say("/stop")
            await chat.wait_for_post("Stopped.")
            chat.say("/history")
            reply = await chat.wait_for_post(f"you: {FAILED}")
        lines = [line.strip() for line in reply.text.splitlines()]
        assert lines[0] == f"you: {FAILED}"
        assert lines[1].startswith(UNANSWERED.removesuffix(")"))
        assert REFUSED in lines[1]
        assert lines[2:4] == [f"you: {KILLED}", INTERRUPTED]
