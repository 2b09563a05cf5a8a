"""Passkeys: made and used in a real Chromium, and refused when anything about them is forged."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import anyio
import pytest

from hermes.kit.files import open_locked
from support.authenticator import Authenticator, encoded
from support.chromium import open_window
from support.polling import TIMEOUT
from support.web_client import Client, web_client
from support.web_page import web_harness


async def registered(one: Client) -> Authenticator:
    """The page is opened under a name: browsers make no passkeys for addresses."""
    one.web.url = f"http://localhost:{one.web.server.port}"
    device = Authenticator(one.web.url)
    status, options, _ = await one.send("/passkeys/options", {}, **authorized(one))
    assert status == 200
    new = device.new_passkey(options["challenge"])
    assert (await one.send("/passkeys", new, **authorized(one)))[0] == 200
    return device


def authorized(one: Client) -> dict[str, Any]:
    return {"cookies": one.cookie, "X-CSRF-Token": one.csrf}


async def challenge(one: Client) -> str:
    _, options, _ = await one.send("/login/passkey/options", {})
    return options["challenge"]


async def test_passkey_logs_in_and_removal_ends_its_logins(tmp_path: Path):
    async with web_client(tmp_path) as one:
        device = await registered(one)
        answer = device.answer(await challenge(one))
        status, _, cookies = await one.send("/login/passkey", answer)
        assert status == 200
        token = cookies[f"hermes_{one.web.server.port}"]
        assert one.web.logins.find(token) is not None
        # A challenge counts once.
        assert (await one.send("/login/passkey", answer))[0] == 403
        body = {"id": device.id}
        assert (await one.send("/passkeys/remove", body, **authorized(one)))[0] == 200
        assert one.web.logins.find(token) is None
        assert one.web.logins.find(one.token) is not None
        again = device.answer(await challenge(one))
        assert (await one.send("/login/passkey", again))[0] == 403


async def test_other_requests_are_answered_while_the_begun_logins_are_locked(tmp_path: Path):
    async with web_client(tmp_path) as one:
        one.web.url = f"http://localhost:{one.web.server.port}"
        held, done, begun = Event(), Event(), list[str]()

        def hold() -> bool:
            """Whether the test has released the lock."""
            with open_locked(one.web.logins.folder / "pending-passkey.lock"):
                held.set()
                return done.wait(TIMEOUT)

        async def begin() -> None:
            begun.append(await challenge(one))

        async with anyio.create_task_group() as group:
            with ThreadPoolExecutor(1) as thread:
                holding = thread.submit(hold)
                held.wait()
                group.start_soon(begin)
                for _ in range(3):
                    assert (await one.get("/login/state"))[0] == 200
                assert not begun
                done.set()
                assert holding.result(), "a request has waited for the lock"
        assert begun


def other_origin(device: Authenticator) -> None:
    device.origin = "http://localhost.evil.example"


def other_host(device: Authenticator) -> None:
    device.host = "evil.example"


def unverified(device: Authenticator) -> None:
    device.flags = 0x01


def absent(device: Authenticator) -> None:
    device.flags = 0x04


def other_key(device: Authenticator) -> None:
    device.key = Authenticator(device.origin).key


def other_id(device: Authenticator) -> None:
    device.id = encoded(b"passkey-2")


@pytest.mark.parametrize("lie", [other_origin, other_host, unverified, absent, other_key, other_id])
async def test_forged_answer_is_refused(tmp_path: Path, lie: Callable[[Authenticator], None]):
    async with web_client(tmp_path) as one:
        device = await registered(one)
        lie(device)
        status, _, cookies = await one.send("/login/passkey", device.answer(await challenge(one)))
        assert (status, cookies) == (403, {})


async def test_answer_to_another_question_is_refused(tmp_path: Path):
    async with web_client(tmp_path) as one:
        device = await registered(one)
        _, new, _ = await one.send("/passkeys/options", {}, **authorized(one))
        for answer in (
            device.answer(encoded(b"made up")),
            device.answer(new["challenge"]),
            device.answer(await challenge(one), kind="webauthn.create"),
            device.answer(await challenge(one)) | {"signature": ""},
            device.answer(await challenge(one)) | {"authenticatorData": "!"},
        ):
            assert (await one.send("/login/passkey", answer))[0] == 403


async def test_copied_passkey_is_noticed_by_its_counter(tmp_path: Path):
    async with web_client(tmp_path) as one:
        device = await registered(one)
        for count, expected in ((5, 200), (5, 403), (4, 403), (6, 200)):
            device.count = count
            answer = device.answer(await challenge(one))
            assert (await one.send("/login/passkey", answer))[0] == expected


async def test_passkey_is_added_by_the_owner_only(tmp_path: Path):
    async with web_client(tmp_path) as one:
        device = await registered(one)
        assert (await one.send("/passkeys/options", {}))[0] == 401
        assert (await one.send("/passkeys/options", {}, cookies=one.cookie))[0] == 403
        _, options, _ = await one.send("/passkeys/options", {}, **authorized(one))
        device.id = encoded(b"passkey-2")
        new = device.new_passkey(options["challenge"])
        other = Client(one.web, one.http)
        # The challenge was for another login, and is used up.
        assert (await one.send("/passkeys", new, **authorized(other)))[0] == 400
        assert (await one.send("/passkeys", new, **authorized(one)))[0] == 400
        for wrong in ({"algorithm": -8}, {"algorithm": 0}, {"publicKey": "AAAA"}, {"id": ""}):
            _, options, _ = await one.send("/passkeys/options", {}, **authorized(one))
            new = device.new_passkey(options["challenge"], **wrong)
            assert (await one.send("/passkeys", new, **authorized(one)))[0] == 400
        assert len(one.web.logins.passkeys()) == 1


async def test_page_under_an_address_says_that_passkeys_need_a_name(tmp_path: Path):
    async with web_client(tmp_path) as one:
        status, answer, _ = await one.send("/login/passkey/options", {})
        assert (status, "localhost" in answer["error"]) == (400, True)
        assert "localhost" in (await one.get("/system"))[1]


@pytest.mark.slow
async def test_passkey_is_made_and_used_in_a_browser(browser: str, tmp_path: Path):
    async with web_harness(tmp_path) as web, open_window(browser) as window:
        web.url = f"http://localhost:{web.server.port}"
        page = await window.page()
        await page.call("WebAuthn.enable")
        options = {
            "protocol": "ctap2", "transport": "internal", "hasResidentKey": True,
            "hasUserVerification": True, "isUserVerified": True,
            "automaticPresenceSimulation": True,
        }  # fmt: skip
        await page.call("WebAuthn.addVirtualAuthenticator", options=options)
        await web.log_in(page, "/system")
        await page.click("[data-action=add-passkey]")
        await page.wait("document.activeElement.matches('dialog[open] input')")
        await page.run("document.activeElement.select()")
        await page.type("<b>my laptop</b>")
        await page.press("Enter")
        await page.wait("document.querySelector('#passkeys b')?.textContent === '<b>my laptop</b>'")
        await page.run("document.querySelector('[data-action=logout]').click()")
        await page.wait("location.pathname === '/login' && document.readyState === 'complete'")
        await page.goto(f"{web.url}/login?next=/system")
        await page.click("#passkey")
        await page.wait("location.pathname === '/system' && document.readyState === 'complete'")
        assert "<b>my laptop</b>" in await page.text("#logins")
        # Removing it also ends this login.
        await page.click("#passkeys button")
        await page.click("dialog[open] [value=ok]")
        await page.wait("location.pathname === '/login'")
        assert web.logins.passkeys() == ()
        assert page.errors == []
