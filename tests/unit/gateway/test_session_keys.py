"""Two chats never share a session, even if their ids produce the same key."""

from pathlib import Path

import anyio
from hypothesis import given
from hypothesis import strategies as st

from hermes.gateway.intake import Authorize
from hermes.gateway.messages import Admitted, Rejected
from hermes.gateway.session_keys import SessionKeys, keys_at
from hermes.ports.channel import Inbound
from hermes.schema.messages import Text
from hermes.schema.scope import OWNER, Address
from hermes.session.keys import ChatId, SessionSource, build_session_key, chat_id_of
from hermes.testing.clock import FakeClock
from hermes.testing.memory_store import open_memory_store
from support.gateway import gateway_harness, wait_until


def chat_id_of_address(address: Address) -> ChatId:
    source = SessionSource(
        platform=address.channel, chat_id=address.chat, thread_id=address.thread, chat_type="group"
    )
    return chat_id_of(source)


async def authorize(inbound: Inbound) -> Admitted | Rejected:
    chat = chat_id_of_address(inbound.address)
    return Admitted(key=chat.key, chat=chat)


def make_message(key: str, address: Address) -> Inbound:
    return Inbound(key, address, "ann", (Text(f"hello {key}"),))


WHOLE, SPLIT = Address("fake", "a:b"), Address("fake", "a", "b")


async def test_ids_with_a_colon_do_not_share_a_session(tmp_path: Path) -> None:
    opened: Authorize = authorize
    clock = FakeClock()
    assert chat_id_of_address(WHOLE).key == chat_id_of_address(SPLIT).key
    async with gateway_harness(tmp_path, authorize=opened, clock=clock) as harness:
        await harness.channel.type(make_message("1", WHOLE))
        await harness.channel.type(make_message("2", SPLIT))
        await wait_until(lambda: len(harness.channel.posts) == 2)
        await harness.wait_until_idle()
    async with gateway_harness(tmp_path, authorize=opened, clock=clock) as two:
        await two.channel.type(make_message("3", SPLIT))
        await wait_until(lambda: len(two.channel.posts) == 1)
        (request,) = two.model.requests
        received = [
            part.text for one in request.messages for part in one.parts if isinstance(part, Text)
        ]
        assert received == ["hello 2", "re: hello 2", "hello 3"]
        session = await two.store.archive_for(OWNER).by_key(chat_id_of_address(WHOLE).key)
        assert session is not None
        rows = await two.store.archive_for(OWNER).messages(session.id)
        assert len(rows) == 2


async def test_concurrent_chats_get_distinct_keys(tmp_path: Path) -> None:
    clock = FakeClock()
    keys: dict[Address, set[str]] = {WHOLE: set(), SPLIT: set()}
    async with open_memory_store(clock) as store:

        async def ask(address: Address) -> None:
            chat = chat_id_of_address(address)
            keys[address].add(await SessionKeys(store, clock).assign(chat.key, chat, address))

        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(ask, WHOLE)
                group.start_soon(ask, SPLIT)
        (whole,), (parted,) = keys[WHOLE], keys[SPLIT]
        assert whole != parted
        assert chat_id_of_address(WHOLE).key in {whole, parted}
        assert await keys_at(store, WHOLE) == [whole]


@given(chat=st.text(), thread=st.text(), user=st.text(), kind=st.sampled_from(["dm", "group"]))
def test_key_is_built_from_its_parts(chat: str, thread: str, user: str, kind: str) -> None:
    source = SessionSource(
        platform="irc", chat_id=chat, thread_id=thread, user_id=user, chat_type=kind
    )
    shown = [chat, thread] if chat else [user or thread]
    if kind == "group":
        shown = [chat, thread, "" if thread else user]
    assert build_session_key(source) == ":".join(
        ["agent", "main", "irc", kind, *(one for one in shown if one)]
    )
