"""Measure building a prompt with many skills, and the model requests of compactions."""

import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import anyio

from bench.report import Number
from hermes.agent.prompts import PromptFacts, build_prompt
from hermes.app.build import AppOptions, open_app
from hermes.app.learning import Learning
from hermes.app.prompt_context import CACHE_SECONDS, PromptContext, PromptRequest
from hermes.config.env import Env, process_env
from hermes.config.home import Home, ensure_home
from hermes.config.schema import Config
from hermes.schema.events import Event, Outcome
from hermes.schema.messages import Text
from hermes.schema.scope import Role
from hermes.store.sqlite import open_store
from hermes.testing.clock import FakeClock
from hermes.testing.fake_openai import Reply, Script, serve

SKILLS = 200
ROUNDS = 200
PROCESSES = 20
COMPRESSIONS = 3
MOST_TURNS = 200
LONG = "word " * 2_000


def measure() -> Iterator[Number]:
    with tempfile.TemporaryDirectory() as folder:
        yield from anyio.run(_prompts, Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        yield from anyio.run(_compressions, Path(folder))


async def _prompts(folder: Path) -> list[Number]:
    home = _furnished(folder)
    clock = FakeClock()
    async with open_store(home.database, clock) as store:
        learning = Learning(home, Env({}), Config(), store, clock)
        briefing = PromptContext(home, Config(), learning, clock)
        _prompt(briefing, home, -1)
        waits = [await _looked_up(briefing, home, clock, number) for number in range(ROUNDS)]
        first: list[float] = []
        for number in range(PROCESSES):
            fresh = PromptContext(
                home, Config(), Learning(home, Env({}), Config(), store, clock), clock
            )
            began = time.perf_counter()
            _prompt(fresh, home, number)
            first.append(time.perf_counter() - began)
    waits.sort()
    name = f"a prompt with {SKILLS} skills, warm"
    return [
        Number(name=name, value=statistics.median(waits) * 1e3, unit="ms", bar=5),
        Number(name="  p95", value=waits[int(ROUNDS * 0.95)] * 1e3, unit="ms"),
        Number(name="  the first of a process", value=statistics.median(first) * 1e3, unit="ms"),
    ]


async def _looked_up(briefing: PromptContext, home: Home, clock: FakeClock, number: int) -> float:
    """Advance the clock past the cache time, so that every file is checked again."""
    await clock.advance(CACHE_SECONDS + 1)
    began = time.perf_counter()
    _prompt(briefing, home, number)
    return time.perf_counter() - began


def _prompt(briefing: PromptContext, home: Home, number: int) -> None:
    """Each prompt has a different text, so that none is cached."""
    workspace = str(home.path.parent / "work")
    brief = briefing.sections(
        PromptRequest(
            workspace=workspace,
            role=Role.OWNER,
            platform="cli",
            tools=("memory", "skill_view", "terminal"),
            toolsets=("memory", "skills", "terminal"),
            window=200_000,
        )
    )
    facts = PromptFacts(
        soul="",
        system="bench",
        home=str(home.path),
        workspace=workspace,
        today=FakeClock().now().date(),
        model="mock",
        provider="openai",
        extra=str(number),
        skills=brief.skills,
        project=brief.project,
        memory=brief.memory,
    )
    prompt = build_prompt(facts)
    if prompt.count("\n- skill-") != SKILLS or "Likes tea" not in prompt:
        raise SystemExit("the prompt is incomplete")


def _furnished(folder: Path) -> Home:
    """A home with skills in ten categories, nearly full memory files, and a project file."""
    home = Home(folder / "home", folder / "home")
    ensure_home(home)
    for number in range(SKILLS):
        place = home.skills / f"category-{number % 10}" / f"skill-{number}"
        place.mkdir(parents=True)
        about = f"How thing number {number} is done here, step by step, with what to look out for"
        head = f"name: skill-{number}\ndescription: {about}\nplatforms: [linux, macos]"
        (place / "SKILL.md").write_text(f"---\n{head}\n---\n\n" + "Do this, then that.\n" * 100)
    home.memories.mkdir(exist_ok=True)
    notes = [f"Likes tea number {number} better than all the others." for number in range(24)]
    (home.memories / "MEMORY.md").write_text("\n§\n".join(notes))
    (home.memories / "USER.md").write_text("\n§\n".join(notes[:20]))
    (folder / "work").mkdir()
    (folder / "work" / "AGENTS.md").write_text("Run the tests before you say it works.\n\n" * 200)
    return home


async def _compressions(folder: Path) -> list[Number]:
    """Count every request of a default profile with a small window."""
    home = Home(folder, folder)
    (folder / "config.yaml").write_text("model:\n  context_length: 32000\n")
    async with serve(Script(default=Reply(text="I see.", usage=None))) as server:
        env = Env(process_env()).overlaid(
            {
                "HERMES_HOME": str(folder),
                "OPENAI_BASE_URL": server.url,
                "OPENAI_API_KEY": "bench",
                "HERMES_INFERENCE_MODEL": "mock",
                "HERMES_INFERENCE_PROVIDER": "openai",
            }
        )
        turns = times = 0
        async with open_app(home, env, AppOptions(source="bench", workspace=str(folder))) as app:
            pressing = app.runner.compaction
            if pressing is None:
                raise SystemExit("compaction is disabled")
            while times < COMPRESSIONS and turns < MOST_TURNS:
                turns += 1
                if (
                    await app.conversation.submit([Text(f"{turns}: {LONG}")], _listen)
                    is not Outcome.DONE
                ):
                    raise SystemExit(f"turn {turns} failed")
                times = (await pressing.state(app.conversation.session)).times
        asked = len(server.requests) + len(server.others)
    name = f"extra requests of {COMPRESSIONS} compactions"
    return [
        Number(
            name=f"compactions in {turns} long turns", value=times, bar=COMPRESSIONS, sense="least"
        ),
        Number(name=name, value=asked - turns - times, bar=0),
    ]


async def _listen(event: Event) -> None:
    """Ignore the event."""
