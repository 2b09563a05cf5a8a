"""Run the cases of one client and print each outcome as a line of JSON."""

import json
import os
import subprocess
import sys
from collections.abc import Callable

URL = os.environ.get("HERMES_URL", "")
KEY = os.environ.get("HERMES_KEY", "")
AGENT = "hermes-agent"
UNKNOWN = "gpt-4o"
HELLO = "Hello there, friend."
RAIN = "It rains in Oslo."
NO_CREDIT = "Insufficient Balance"


class Failed(Exception):
    """The client did not get what it should."""


def expect(words: str, received: object) -> str:
    text = str(received)
    if words not in text:
        raise Failed(f"expected {words!r}, but got {text[:300]!r}")
    return text


def expect_error(call: Callable[[], object]) -> str:
    """Require an error that tells the client why the provider refused."""
    try:
        received = call()
    except Exception as error:  # noqa: BLE001 - each client has its own errors
        return f"{type(error).__name__}: {expect(NO_CREDIT, error)}"
    raise Failed(f"expected an error, but got {str(received)[:300]!r}")


def command(*argv: str, **env: str) -> str:
    """Run a program of the client; its output, even if it fails."""
    done = subprocess.run(
        argv,
        env=os.environ | env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
        check=False,
    )
    return done.stdout.decode(errors="replace")


def run(**cases: Callable[[], object]) -> None:
    for name, case in cases.items():
        try:
            outcome = {"case": name, "ok": True, "detail": str(case())[:300]}
        except Exception as error:  # noqa: BLE001 - reported as the outcome
            outcome = {
                "case": name,
                "ok": False,
                "detail": f"{type(error).__name__}: {error}"[:600],
            }
        print(json.dumps(outcome), flush=True)  # noqa: T201
    sys.exit(0)
