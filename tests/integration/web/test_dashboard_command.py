"""`hermes dashboard` and the page of a gateway, as real processes."""

import json
import re
from http.client import HTTPConnection

import pexpect
import pytest

from hermes.testing.fake_openai.script import Script
from hermes.web.passwords import check_password
from support.cli_process import HermesCli, reserved_port

pytestmark = pytest.mark.slow

SCRIPT = Script()
LINK = re.compile(r"http://127\.0\.0\.1:(\d+)/login#(\S+)")


def log_in(printed: str) -> str:
    """Use the link; returns the cookie."""
    found = LINK.search(printed)
    assert found is not None
    connection = HTTPConnection("127.0.0.1", int(found[1]), timeout=30)
    body, headers = json.dumps({"token": found[2]}), {"Content-Type": "application/json"}
    connection.request("POST", "/login/link", body, headers)
    cookie = connection.getresponse().headers["Set-Cookie"]
    connection.close()
    return str(cookie)


def test_page_is_served_until_it_is_stopped(hermes: HermesCli) -> None:
    with hermes.running("dashboard", "--port", "0", "--no-open") as page:
        page.wait_for("Ctrl+C")
        assert "HttpOnly" in log_in(page.output.decode())
        assert "(dashboard, pid" in hermes("dashboard", "--status").out
        again = hermes("dashboard", "--no-open")
        assert "HttpOnly" in log_in(again.out)
        assert hermes("dashboard", "--stop").code == 0
        assert page.process.wait(60) == 0
    assert hermes("dashboard", "--status").code == 3


def test_interrupt_leaves_the_prompt_on_a_new_line(hermes: HermesCli) -> None:
    with hermes.shell_terminal("dashboard", "--port", "0", "--no-open") as child:
        child.expect_exact("Ctrl+C stops it.")
        child.sendintr()
        child.expect_exact("^C\r\n")
        child.expect(pexpect.EOF)
        child.wait()
        assert child.exitstatus == 0


def test_page_is_not_served_to_other_machines_without_encryption(hermes: HermesCli) -> None:
    refused = hermes("dashboard", "--host", "192.0.2.1", "--port", "0", "--no-open")
    assert refused.code != 0
    assert "without encryption" in refused.err
    assert "dashboard.tls_cert" in refused.err
    assert hermes("dashboard", "--status").code == 3


def test_password_is_stored_as_a_hash(hermes: HermesCli) -> None:
    assert hermes("dashboard", "--set-password", "me", stdin=b"a long password\n").code == 0
    stored = (hermes.home / "config.yaml").read_text()
    assert "a long password" not in stored
    found = re.search(r"password_hash: (\S+)", stored)
    assert found is not None
    assert check_password("a long password", found[1])


def test_gateway_serves_the_page_if_enabled(hermes: HermesCli) -> None:
    with reserved_port() as port:
        settings = f"dashboard: {{enabled: true, port: {port}}}\n"
        hermes.home.mkdir()
        (hermes.home / "config.yaml").write_text(settings)
        with hermes.running("gateway", "run") as gateway:
            gateway.wait_for("dashboard: connected")
            printed = hermes("dashboard", "--no-open")
            assert f":{port}/" in printed.out
            assert "HttpOnly" in log_in(printed.out)
            assert "The gateway serves the dashboard" in hermes("dashboard", "--stop").err
