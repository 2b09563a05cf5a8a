"""Daily maintenance of a long-running process."""

import os
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


async def test_stored_files_are_bounded(tmp_path: Path) -> None:
    home = profile_home(tmp_path, "default")
    home.config.write_text("gateway: {max_stored_media_bytes: 150}\n")
    with anyio.fail_after(60):
        async with open_app(home, Env({}), AppOptions(workspace=str(tmp_path))) as app:
            stored = [await app.blobs.put(bytes([n]) * 100, "text/plain") for n in range(3)]
            paths = [home.cache / "blobs" / one.digest[:2] / one.digest for one in stored]
            old = (app.clock.now() - timedelta(days=2)).timestamp()
            for path in paths[:2]:
                os.utime(path, (old, old))
            await ProfileMaintenance(app).run_once()
            assert [path.exists() for path in paths] == [False, False, True]


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
