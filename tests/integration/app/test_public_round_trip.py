"""A home of the public system: it makes jobs and a board, ours runs them, it still opens them.

Only one of the two gateways runs at a time, and no fire is doubled when the other takes over.

`make public` installs the public system into `.venv-public`. It is only called as a process: its
packages and names collide with ours.
"""

import json
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import pytest

from hermes.testing.fake_openai.script import Call, Reply, Rule, Script
from support.cli_process import Fifo, HermesCli

PUBLIC = Path(__file__).parents[3] / ".venv-public/bin/hermes"
SCRIPT = Script(
    rules=[
        Rule("write the poem", [Reply("", [Call("kanban_complete", {"summary": "written"})])]),
        Rule("count the mails", [Reply("42 mails.")]),
    ],
    default=Reply("Done."),
)
pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PUBLIC.exists(), reason="no .venv-public; `make public` installs it"),
]


def theirs(hermes: HermesCli, *words: str) -> str:
    done = subprocess.run(
        [PUBLIC, *words],
        cwd=hermes.work,
        env=hermes.env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def ours(hermes: HermesCli, *words: str) -> Any:
    done = hermes(*words, "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_home_of_the_public_system_is_served_and_stays_valid(hermes: HermesCli) -> None:
    hermes.home.mkdir()
    hermes.configure("agent: {api_max_retries: 0}\n")
    theirs(hermes, "cron", "create", "every 1h", "count the mails", "--name", "mails")
    theirs(hermes, "cron", "create", "0 9 * * 1-5", "say hello", "--name", "hello")
    parent = json.loads(
        theirs(hermes, "kanban", "create", "write the poem", "--assignee", "default", "--json")
    )["id"]
    child = json.loads(
        theirs(
            hermes,
            "kanban",
            "create",
            "read it",
            "--assignee",
            "alice",
            "--parent",
            parent,
            "--json",
        )
    )["id"]

    jobs = {job["name"]: job for job in ours(hermes, "cron", "list", "--all")}
    assert set(jobs) == {"mails", "hello"}
    assert jobs["mails"]["schedule"]["minutes"] == 60
    fire = ours(hermes, "cron", "run", "mails")
    assert fire["state"] == "completed", fire
    ours(hermes, "cron", "pause", "hello")
    ours(hermes, "kanban", "dispatch")
    assert ours(hermes, "kanban", "show", parent)["task"]["status"] == "done"
    ours(hermes, "kanban", "comment", child, "a comment of ours")

    listed = theirs(hermes, "cron", "list", "--all")
    assert "mails" in listed
    assert "paused" in listed
    stored = {
        job["name"]: job for job in json.loads((hermes.home / "cron/jobs.json").read_text())["jobs"]
    }
    assert stored["mails"]["last_status"] == "ok"
    theirs(hermes, "cron", "resume", "hello")
    shown = json.loads(theirs(hermes, "kanban", "show", parent, "--json"))
    assert shown["task"]["status"] == "done"
    assert shown["latest_summary"] == "written"
    assert [run["outcome"] for run in shown["runs"]] == ["completed"]
    after = json.loads(theirs(hermes, "kanban", "show", child, "--json"))
    assert after["task"]["status"] == "ready"
    assert [one["body"] for one in after["comments"]] == ["a comment of ours"]
    theirs(hermes, "kanban", "complete", child, "--summary", "read")

    assert ours(hermes, "kanban", "show", child)["task"]["status"] == "done"
    resumed = {job["name"]: job for job in ours(hermes, "cron", "list", "--all")}
    assert resumed["hello"]["state"] == "scheduled"


@pytest.fixture
def fires(tmp_path: Path) -> Iterator[Fifo]:
    fifo = Fifo(tmp_path / "fires")
    yield fifo
    fifo.close()


def test_only_one_of_the_two_gateways_runs_and_no_fire_is_doubled(
    hermes: HermesCli, fires: Fifo
) -> None:
    script = hermes.home / "scripts/tick.sh"
    script.parent.mkdir(parents=True)
    script.write_text(f'#!/bin/sh\necho "$(date +%s)" >{fires.path}\necho tick\n')
    script.chmod(0o755)
    create = ("cron", "create", "every 1m", "--no-agent", "--script", "tick.sh", "--name", "tick")
    theirs(hermes, *create)
    gateway = [PUBLIC, "gateway", "run"]
    times: list[int] = []

    def wait_for_fires(count: int) -> None:
        while len(times) < count:
            times.extend(map(int, fires.lines()))

    with subprocess.Popen(gateway, cwd=hermes.work, env=hermes.env, stdout=DEVNULL) as running:
        wait_for_fires(1)
        refused = hermes("gateway", "run")
        assert refused.code != 0
        assert "already running" in refused.err
        running.terminate()
    assert hermes("gateway", "start").code == 0
    wait_for_fires(2)
    other = subprocess.run(
        gateway, cwd=hermes.work, env=hermes.env, capture_output=True, timeout=300, check=False
    )
    assert b"already running" in other.stdout + other.stderr
    theirs(hermes, "cron", "tick")
    wait_for_fires(3)
    theirs(hermes, "cron", "tick")
    assert hermes("gateway", "stop").code == 0
    # A fire that both programs ran would follow at once.
    assert all(later - one > 20 for one, later in pairwise(times)), times
