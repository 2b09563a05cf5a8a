"""What a process that runs for months lets go of, day by day."""

from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from msgspec import Raw

from hermes.app.build import Choices, open_app
from hermes.app.upkeep import Upkeep
from hermes.config.env import Env
from hermes.config.home import home_of
from hermes.gateway import question_posts
from hermes.ports.matters import Matter, PutMatter
from hermes.session import endings

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("kind", "kept"),
    [(question_posts.KIND, question_posts.KEPT), (endings.KIND, endings.KEPT)],
)
async def test_what_nobody_asks_for_any_more_is_let_go(
    tmp_path: Path, kind: str, kept: timedelta
) -> None:
    with anyio.fail_after(60):
        async with open_app(
            home_of(tmp_path, "default"), Env({}), Choices(workspace=str(tmp_path))
        ) as app:
            now, day = app.clock.now(), timedelta(days=1)
            for name, age in (("old", kept + day), ("young", kept - day)):
                matter = Matter(
                    kind=kind, id=name, session="", state="x", at=now - age, body=Raw(b'"x"'),
                    open=False,
                )  # fmt: skip
                await app.store.commit(PutMatter(matter))
            await Upkeep(app).once()
            assert [one.id for one in await app.store.matters.find(kind)] == ["young"]
