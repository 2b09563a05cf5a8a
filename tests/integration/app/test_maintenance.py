"""Daily maintenance of a long-running process."""

from datetime import timedelta
from pathlib import Path

import anyio

from hermes.app.build import AppOptions, open_app
from hermes.app.maintenance import ProfileMaintenance
from hermes.config.env import Env
from hermes.config.home import profile_home
from hermes.gateway import questions
from hermes.ports.chat_records import PutQuestionPost
from hermes.ports.run_records import FailedRun, PutFailedRun
from hermes.schema.scope import Address
from hermes.session import recorder


async def test_expired_rows_are_deleted(tmp_path: Path) -> None:
    with anyio.fail_after(60):
        async with open_app(
            profile_home(tmp_path, "default"), Env({}), AppOptions(workspace=str(tmp_path))
        ) as app:
            now, day, here = app.clock.now(), timedelta(days=1), Address("test", "1")
            for name, age in (("old", day), ("young", -day)):
                at = now - recorder.RETENTION - age
                failed = FailedRun(run=name, session="s", outcome="failed", reason="x", at=at)
                post = PutQuestionPost(here, name, "ask_1", now - questions.RETENTION - age)
                await app.store.commit(PutFailedRun(failed), post)
            await ProfileMaintenance(app).run_once()
            assert [one.run for one in await app.store.runs.failures("s")] == ["young"]
            assert await app.store.chats.question_in(here, "old") == ""
            assert await app.store.chats.question_in(here, "young") == "ask_1"
