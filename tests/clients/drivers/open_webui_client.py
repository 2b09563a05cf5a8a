"""Open WebUI in Chromium, with the gateway as its only connection."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from cases import AGENT, HELLO, KEY, NO_CREDIT, URL, Failed, expect, run
from playwright.sync_api import sync_playwright

START_TIMEOUT = 300
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SETTINGS = {
    "OFFLINE_MODE": "True",
    "HF_HUB_OFFLINE": "1",
    "WEBUI_AUTH": "False",
    "RAG_EMBEDDING_ENGINE": "openai",
    "ENABLE_OLLAMA_API": "False",
    "ENABLE_PERSISTENT_CONFIG": "False",
    "ENABLE_VERSION_UPDATE_CHECK": "False",
    "OPENAI_API_BASE_URL": URL,
    "OPENAI_API_KEY": KEY,
    "WEBUI_SECRET_KEY": "only-for-this-run",
    "ANONYMIZED_TELEMETRY": "False",
}
browser_path = next(filter(None, map(shutil.which, BROWSERS)), None)
if browser_path is None:
    detail = "Chromium is missing (Debian: apt install chromium)"
    sys.stdout.write(json.dumps({"case": "skip", "ok": False, "detail": detail}) + "\n")
    sys.exit(0)
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
address = f"http://127.0.0.1:{port}"
data = tempfile.mkdtemp()
log = Path(data, "log.txt").open("wb")  # noqa: SIM115 - open as long as the server runs
server = subprocess.Popen(
    [str(Path(sys.prefix) / "bin" / "open-webui"), "serve", "--host", "127.0.0.1", "--port",
     str(port)],
    env=os.environ | SETTINGS | {"DATA_DIR": data},
    stdout=log,
    stderr=subprocess.STDOUT,
)  # fmt: skip


def request(path, body=None, token=""):
    headers = {"Content-Type": "application/json"}
    headers |= {"Authorization": f"Bearer {token}"} if token else {}
    sent = None if body is None else json.dumps(body).encode()
    http_request = urllib.request.Request(address + path, data=sent, headers=headers)  # noqa: S310
    with urllib.request.urlopen(http_request, timeout=60) as response:  # noqa: S310 - our own address
        return response.read().decode()


def wait_until_ready():
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        if server.poll() is not None:
            lines = Path(data, "log.txt").read_text(errors="replace").splitlines()
            raise Failed(f"it ended: {' '.join(lines[-3:])}")
        try:
            return request("/health")
        except OSError:
            time.sleep(0.5)
    raise Failed("it did not start")


def token():
    return json.loads(request("/api/v1/auths/signin", {"email": "", "password": ""}))["token"]


def complete(text, model, **more):
    messages = [{"role": "user", "content": text}]
    body = {"model": model, "messages": messages, "stream": False, **more}
    return request("/api/chat/completions", body, token())


def tool():
    function = {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
    tools = [{"type": "function", "function": function}]
    return expect("weather", complete("the weather", AGENT, tools=tools))


def typed(page, text, answer):
    page.goto(f"{address}/?model={AGENT}")
    page.wait_for_selector("#chat-input", timeout=120_000)
    # A new version is announced in a dialog.
    page.keyboard.press("Escape")
    page.locator("#chat-input").click()
    page.keyboard.type(text)
    page.keyboard.press("Enter")
    page.get_by_text(answer).first.wait_for(timeout=60_000)
    return answer


try:
    wait_until_ready()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page()
        try:
            run(
                chat=lambda: expect(HELLO, complete("hello", AGENT)),
                stream=lambda: typed(page, "hello", HELLO),
                tool=tool,
                error=lambda: typed(page, "fail", NO_CREDIT),
            )
        finally:
            browser.close()
finally:
    server.terminate()
    server.wait(30)
