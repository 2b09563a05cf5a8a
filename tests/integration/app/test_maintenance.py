"""Daily maintenance of a long-running process."""

from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from msgspec import Raw

from hermes.app.build import AppOptions, open_app
from hermes.app.maintenance import ProfileMaintenance
from hermes.config.env import Env
from hermes.config.home import profile_home
from hermes.gateway import questions
from hermes.ports.records import PutRecord, StateRecord
from hermes.session import recorder

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("kind", "kept"),
    [
        (questions.QUESTION_POST_KIND, questions.RETENTION),
        (recorder.RUN_END_KIND, recorder.RETENTION),
    ],
)
async def test_expired_rows_are_deleted(tmp_path: Path, kind: str, kept: timedelta) -> None:
    with anyio.fail_after(60):
        async with open_app(
            profile_home(tmp_path, "default"), Env({}), AppOptions(workspace=str(tmp_path))
        ) as app:
            now, day = app.clock.now(), timedelta(days=1)
            for name, age in (("old", kept + day), ("young", kept - day)):
                matter = StateRecord(
                    kind=kind, id=name, session="", state="x", at=now - age, body=Raw(b'"x"'),
                    open=False,
                )  # fmt: skip
                await app.store.commit(PutRecord(matter))
            await ProfileMaintenance(app).run_once()
            assert [one.id for one in await app.store.records.find(kind)] == ["young"]
