"""Closing a profile leaves no task behind."""

import asyncio
from pathlib import Path

from hermes.app.build import AppOptions, open_app
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.ports.store import Fence
from hermes.session.lease import Lease


async def test_lease_renewal_ends_with_the_profile(tmp_path: Path) -> None:
    home = Home(root=tmp_path, path=tmp_path)
    home.config.write_text("model: {default: m, base_url: 'http://127.0.0.1:1/v1'}\n")
    before = asyncio.all_tasks()
    async with open_app(home, Env({"HOME": str(tmp_path)}), AppOptions(workspace="/")) as app:
        own = asyncio.all_tasks()
        with app.runner.lease_renewer.renewing(Lease(app.store, "we/boot/1/1", Fence("s", 1))):
            pass
        assert len(asyncio.all_tasks() - own) == 1
    assert asyncio.all_tasks() <= before
