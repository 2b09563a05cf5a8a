import asyncio

import pytest

from hermes.schema.scope import Address, Requester, Scope
from hermes.session.session_context import (
    async_delivery_supported,
    bound_scope,
    clear_session_vars,
    get_session_env,
    reset_session_vars,
    session_context_engaged,
    session_env,
    set_cron_delivery,
    set_current_session_id,
    set_session_vars,
)

CHAT = "HERMES_SESSION_CHAT_ID"


@pytest.fixture(autouse=True)
def unbound():
    reset_session_vars()
    yield
    reset_session_vars()


def test_unbound_variable_has_the_process_value(monkeypatch):
    monkeypatch.setenv(CHAT, "from-outside")
    assert get_session_env(CHAT) == "from-outside"
    assert get_session_env("HERMES_SESSION_THREAD_ID", "none") == "none"


def test_bound_variable_hides_the_process_value(monkeypatch):
    monkeypatch.setenv("HERMES_SESSION_THREAD_ID", "from-outside")
    set_session_vars(platform="chat", chat_id="1")
    assert get_session_env(CHAT) == "1"
    assert get_session_env("HERMES_SESSION_THREAD_ID") == ""


def test_cleared_context_does_not_fall_back(monkeypatch):
    monkeypatch.setenv(CHAT, "from-outside")
    clear_session_vars(set_session_vars(chat_id="1", async_delivery=False))
    assert get_session_env(CHAT) == ""
    assert async_delivery_supported()


def test_unknown_variable_is_refused():
    with pytest.raises(TypeError, match="chatid"):
        set_session_vars(chatid="1")


def test_binding_engages_permanently():
    clear_session_vars(set_session_vars(chat_id="1"))
    reset_session_vars()
    assert session_context_engaged()


def test_session_id_can_change():
    set_session_vars(session_id="a", chat_id="1")
    set_current_session_id("b")
    assert (get_session_env("HERMES_SESSION_ID"), get_session_env(CHAT)) == ("b", "1")


def test_cron_targets_are_separate():
    set_cron_delivery("chat", "7")
    clear_session_vars()
    assert session_env() == {
        "HERMES_CRON_AUTO_DELIVER_PLATFORM": "chat",
        "HERMES_CRON_AUTO_DELIVER_CHAT_ID": "7",
    }


def test_bound_scope_restores_the_previous_binding():
    scope = Scope(
        profile="work",
        session="s1",
        run="r1",
        workspace="/w",
        principal="chat:ann",
        address=Address("chat", "9", "t"),
        later=False,
        source="chat",
        key="agent:work:chat",
        asker=Requester(user="ann", name="Ann", chat_name="Home", message="m1"),
        handed_on=Address("post", "7"),
    )
    set_session_vars(chat_id="before")
    with bound_scope(scope):
        assert session_env() == {
            "HERMES_SESSION_PLATFORM": "chat",
            "HERMES_SESSION_SOURCE": "chat",
            "HERMES_SESSION_CHAT_ID": "9",
            "HERMES_SESSION_THREAD_ID": "t",
            "HERMES_SESSION_USER_ID": "ann",
            "HERMES_SESSION_KEY": "agent:work:chat",
            "HERMES_SESSION_ID": "s1",
            "HERMES_SESSION_PROFILE": "work",
            "HERMES_SESSION_CWD": "/w",
            "HERMES_SESSION_USER_NAME": "Ann",
            "HERMES_SESSION_CHAT_NAME": "Home",
            "HERMES_SESSION_MESSAGE_ID": "m1",
            "HERMES_CRON_AUTO_DELIVER_PLATFORM": "post",
            "HERMES_CRON_AUTO_DELIVER_CHAT_ID": "7",
        }
        assert not async_delivery_supported()
    assert (get_session_env(CHAT), async_delivery_supported()) == ("before", True)


def test_concurrent_tasks_do_not_see_each_other():
    async def handler(number: int, gate: asyncio.Event) -> tuple[str, str]:
        inherited = get_session_env(CHAT)
        reset_session_vars()
        assert session_env() == {}
        set_session_vars(chat_id=str(number))
        await gate.wait()
        return inherited, get_session_env(CHAT)

    async def main() -> list[tuple[str, str]]:
        gate = asyncio.Event()
        set_session_vars(chat_id="starter")
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(handler(n, gate)) for n in range(40)]
            await asyncio.sleep(0)
            gate.set()
        return [task.result() for task in tasks]

    assert asyncio.run(main()) == [("starter", str(n)) for n in range(40)]
