"""Install and run the clients, and print a table of what works.

usage: python -m clients [--record] [NAME …]

The exit status is 1 if a case of an installed client fails. `--record` replaces the requests in
`recorded/`, which the tests send again without the clients.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec
from msgspec import Struct, field

from clients.environments import (
    Environment,
    NotInstalled,
    node_environment,
    python_environment,
)
from clients.gateway import KEY, Recorder, running_gateway
from clients.recorded import RECORDED, Exchange, check_exchange, load_exchanges

RUN_TIMEOUT = 600
CASES = ("chat", "stream", "tool", "responses", "unknown_model", "error")


class Client(Struct, frozen=True):
    """A client of the matrix; without `install` its documented calls are sent instead."""

    name: str
    install: Callable[[], Environment] | None = None


class Outcome(Struct):
    case: str
    ok: bool
    detail: str = ""


class Report(Struct):
    client: str
    version: str = ""
    outcomes: list[Outcome] = field(default_factory=list)
    missing: str = ""
    """Why the client could not be installed or run."""


def _python(driver: str, *packages: str, without: Sequence[str] = ()) -> Callable[[], Environment]:
    return lambda: python_environment(driver, packages, without)


MATRIX = (
    Client("openai (Python)", _python("openai_python.py", "openai==2.47.0")),
    Client(
        "openai (Node)", lambda: node_environment("openai_node.mjs", ["openai@6.49.0"])
    ),
    Client(
        "Vercel AI SDK",
        lambda: node_environment(
            "vercel.mjs",
            ["ai@6.0.326", "@ai-sdk/openai@3.0.139", "@ai-sdk/openai-compatible@2.0.87",
             "zod@4.6.7"],
        ),
    ),
    Client("LangChain", _python("langchain_openai_client.py", "langchain-openai==1.7.3")),
    Client("litellm", _python("litellm_client.py", "litellm==1.106.2", "mcp")),
    Client("pydantic-ai", _python("pydantic_ai_client.py", "pydantic-ai-slim[openai]==2.66.0")),
    Client("openai-agents", _python("openai_agents_client.py", "openai-agents==0.24.0")),
    Client("instructor", _python("instructor_client.py", "instructor==1.17.0")),
    Client("llm", _python("llm_client.py", "llm==0.36")),
    Client("aider", _python("aider_client.py", "aider-chat==0.86.2")),
    Client(
        "codex CLI",
        lambda: node_environment("codex_client.py", ["@openai/codex@0.166.0"], program="codex"),
    ),
    Client(
        "Open WebUI",
        # Its embedding models would need torch, which it does not use with these settings.
        _python("open_webui_client.py", "open-webui==0.12.4", "playwright", without=["torch"]),
    ),
    Client("hermes-webui"),
    Client("hermes-desktop"),
    Client("hermes-workspace"),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m clients")
    parser.add_argument("--record", action="store_true", help="store the requests for the tests")
    parser.add_argument("names", nargs="*", help="run only these clients")
    args = parser.parse_args()
    wanted = [one for one in MATRIX if not args.names or one.name in args.names]
    reports = anyio.run(_run_all, wanted, args.record)
    _print_table(reports)
    return int(any(not case.ok for report in reports for case in report.outcomes))


async def _run_all(clients: Sequence[Client], record: bool) -> list[Report]:
    reports: list[Report] = []
    with tempfile.TemporaryDirectory() as folder:
        async with running_gateway(Path(folder)) as url:
            for client in clients:
                _say(f"{client.name} …")
                recorder = Recorder(url)
                async with recorder.serving() as address:
                    report = await _run_client(client, address)
                reports.append(report)
                worked = report.outcomes and all(one.ok for one in report.outcomes)
                if record and client.install and worked:
                    path = RECORDED / f"{file_name(client.name)}.json"
                    lines = map(msgspec.json.encode, recorder.requests)
                    path.write_bytes(b"[\n" + b",\n".join(lines) + b"\n]\n")
    return reports


async def _run_client(client: Client, address: str) -> Report:
    report = Report(client.name)
    if client.install is None:
        report.version = "documented calls"
        report.outcomes = await _send_exchanges(file_name(client.name), address)
        return report
    try:
        environment = await anyio.to_thread.run_sync(client.install)
    except NotInstalled as error:
        report.missing = f"not installed: {error}"
        return report
    report.version = environment.version
    report.outcomes, report.missing = await _run_driver(environment, address)
    return report


async def _run_driver(environment: Environment, address: str) -> tuple[list[Outcome], str]:
    env = environment.env | {"HERMES_URL": f"{address}/v1", "HERMES_KEY": KEY}
    with tempfile.TemporaryDirectory() as home:
        env |= {"HOME": home, "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
        env |= {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONWARNINGS": "ignore"}
        try:
            with anyio.fail_after(RUN_TIMEOUT):
                done = await anyio.run_process(
                    environment.command, env=env, check=False, stderr=subprocess.PIPE
                )
        except TimeoutError:
            return [Outcome("run", False, f"took longer than {RUN_TIMEOUT} s")], ""
    lines = [line for line in done.stdout.splitlines() if line.startswith(b'{"case"')]
    outcomes = [msgspec.json.decode(line, type=Outcome) for line in lines]
    if not outcomes:
        output = done.stderr.decode(errors="replace").strip().splitlines()
        outcomes = [Outcome("run", False, output[-1] if output else "no output")]
    skipped = [one for one in outcomes if one.case == "skip"]
    return [one for one in outcomes if one.case != "skip"], skipped[0].detail if skipped else ""


async def _send_exchanges(name: str, address: str) -> list[Outcome]:
    by_case: dict[str, Outcome] = {}
    for exchange in load_exchanges(name):
        problem = await _problem(exchange, address)
        case = exchange.case or "chat"
        if problem or case not in by_case:
            by_case[case] = Outcome(case, not problem, problem)
    return list(by_case.values())


async def _problem(exchange: Exchange, address: str) -> str:
    import aiohttp  # noqa: PLC0415 - only these clients need it

    headers = {"Authorization": f"Bearer {KEY}", **exchange.headers}
    async with (
        aiohttp.ClientSession() as http,
        http.request(
            exchange.method, address + exchange.path, data=exchange.data, headers=headers
        ) as response,
    ):
        return check_exchange(exchange, response.status, await response.read())


def _print_table(reports: Sequence[Report]) -> None:
    rows = [["client", "version", *(case.replace("_", " ") for case in CASES)]]
    for report in reports:
        broken = [one for one in report.outcomes if one.case == "run"]
        if report.missing or broken:
            rows.append([report.client, report.version, report.missing or "FAILED to run"])
            continue
        by_case = {one.case: one for one in report.outcomes}
        cells = [_cell(by_case.get(case)) for case in CASES]
        rows.append([report.client, report.version, *cells])
    widths = [max(len(row[n]) for row in rows if len(row) > n) for n in range(2)]
    for row in rows:
        start = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))
        _say(f"{start}  " + "  ".join(cell.ljust(13) for cell in row[2:]).rstrip())
    for report in reports:
        for one in report.outcomes:
            if not one.ok:
                _say(f"{report.client}, {one.case}: {one.detail}")


def _cell(outcome: Outcome | None) -> str:
    if outcome is None:
        return "-"
    return "ok" if outcome.ok else "FAILED"


def file_name(client: str) -> str:
    return client.lower().replace("(", "").replace(")", "").replace(" ", "-")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
