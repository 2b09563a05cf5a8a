"""The system prompt of a real profile."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import structs

from hermes.agent.plan import Plan
from hermes.app.build import App, AppOptions, open_app
from hermes.app.session_services import SessionWindow
from hermes.compaction.service import CompactionOptions
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.kit.files import settled_stamp
from hermes.models.providers import ServedModel
from hermes.models.wire.chat_completions import ChatWire
from hermes.ports.model import ModelRequest
from hermes.ports.store import AppendMessage, OpenSession
from hermes.schema.errors import SpendCapReached, UsageError
from hermes.schema.scope import Role, Scope
from hermes.schema.sessions import Session
from support.polling import wait_until
from support.turns import user_message

ENV = {
    "PATH": "/usr/bin:/bin",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
    "OPENAI_API_KEY": "sk-nothing",
    "HERMES_INFERENCE_PROVIDER": "openai",
    "HERMES_INFERENCE_MODEL": "mock",
}


@asynccontextmanager
async def profile(root: Path, settings: str = "") -> AsyncGenerator[App]:
    home, work = root / "home", root / "work"
    home.mkdir(exist_ok=True)
    work.mkdir(exist_ok=True)
    if settings:
        (home / "config.yaml").write_text(settings)
    env = Env({**ENV, "HOME": str(root)})
    async with open_app(Home(root=home, path=home), env, AppOptions(workspace=str(work))) as app:
        yield app


async def planned(app: App, root: Path, **changes: object) -> Plan:
    work = str(root / "work")
    scope = Scope(profile="default", session="s1", run="r1", workspace=work, source="cli")
    session = Session(id="s1", started_at=app.clock.now(), cwd=work)
    role = changes.pop("role", Role.OWNER)
    plan = await app.planner.plan(
        structs.replace(session, **changes), structs.replace(scope, role=role), []
    )
    assert isinstance(plan, Plan)
    return plan


def remember(root: Path, text: str) -> None:
    folder = root / "home" / "memories"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "MEMORY.md").write_text(text)


async def test_request_is_small(tmp_path: Path) -> None:
    async with profile(tmp_path) as app:
        plan = await planned(app, tmp_path)
        specs = [tool.spec for _, tool in sorted(plan.tools.items())]
        request = ModelRequest(plan.system, [user_message("hi")], specs)
        assert "# Skills" in plan.system
        wire = ChatWire(ServedModel(model="mock", provider="openai", window=1))
        assert len(wire.body(request)) <= 16_500


async def test_prompt_is_reused_until_it_must_change(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "AGENTS.md").write_text("Use tabs.")
    remember(tmp_path, "They like tea.")
    async with profile(tmp_path) as app:
        first = await planned(app, tmp_path)
    async with profile(tmp_path) as app:
        again = await planned(app, tmp_path)
        assert again.system == first.system
        remember(tmp_path, "They like coffee.")
        kept = {"system": first.system, "model": "mock", "provider": "openai"}
        later = await planned(app, tmp_path, **kept)
        assert later.system == first.system
        assert later.rebuild_prompt is not None
        assert "coffee" in later.rebuild_prompt()
        moved = kept | {"provider": "elsewhere"}
        assert "coffee" in (await planned(app, tmp_path, **moved)).system


async def test_memory_is_only_for_the_owner(tmp_path: Path) -> None:
    remember(tmp_path, "They like tea.")
    async with profile(tmp_path) as app:
        assert "They like tea." in (await planned(app, tmp_path)).system
        assert "They like tea." not in (await planned(app, tmp_path, role=Role.MEMBER)).system


async def test_next_prompt_follows_changed_files(tmp_path: Path) -> None:
    async with profile(tmp_path) as app:
        soul, memories = tmp_path / "home" / "SOUL.md", tmp_path / "home" / "memories"
        soul.write_text("You are a cat.")
        memories.mkdir(exist_ok=True)
        # From then on, what was read is kept.
        for path in (soul, memories):
            await wait_until(lambda at=str(path): settled_stamp(at) is not None)
        for _ in range(2):
            assert "You are a cat." in (await planned(app, tmp_path)).system
        for animal in ("dog", "owl"):
            soul.write_text(f"You are a {animal}.")
            assert f"You are a {animal}." in (await planned(app, tmp_path)).system
        soul.unlink()
        remember(tmp_path, "Likes tea.")
        prompt = (await planned(app, tmp_path)).system
        assert "You are a" not in prompt
        assert "Likes tea." in prompt


async def test_prompt_follows_the_settings(tmp_path: Path) -> None:
    settings = (
        "compression:\n  enabled: false\nmemory:\n  memory_enabled: false\n"
        "limits:\n  usd_per_session: 0\n"
    )
    remember(tmp_path, "They like tea.")
    async with profile(tmp_path, settings) as app:
        plan = await planned(app, tmp_path)
        assert "They like tea." not in plan.system
        assert app.runner.compaction is None
        assert plan.check_spend is not None
        with pytest.raises(SpendCapReached, match=r"limit of \$0.00 for this session"):
            await plan.check_spend()
        session = Session(id="s1", started_at=app.clock.now())
        with pytest.raises(UsageError, match="disabled"):
            await SessionWindow(app).compress(session, CompactionOptions(), preview=True)


async def test_context_usage_is_reported(tmp_path: Path) -> None:
    async with profile(tmp_path) as app:
        plan = await planned(app, tmp_path)
        session = Session(id="s1", started_at=app.clock.now(), system=plan.system, model="mock",
                          provider="openai")  # fmt: skip
        messages = [
            AppendMessage("s1", "", user_message("word " * 400), app.clock.now()) for _ in range(3)
        ]
        await app.store.commit(OpenSession(session), *messages)
        window = SessionWindow(app)
        filling = await window.usage(session, Role.OWNER)
        assert list(filling.parts) == ["system", "skills", "project", "memory", "tools", "history"]
        assert 1_500 <= filling.parts["history"] <= 1_600
        assert filling.parts["tools"] > 1_000
        assert filling.trigger < filling.window
        await window.pin(session, "Never push.")
        assert list(await window.pins(session)) == ["Never push."]
        assert await window.unpin(session, 1) == "Never push."
        assert list(await window.pins(session)) == []
        with pytest.raises(UsageError, match="at most 500"):
            await window.pin(session, "x" * 501)
