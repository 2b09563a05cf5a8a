"""Messages left by a crash are read by the next turn, unless the client sends them again."""

from pathlib import Path

import anyio
import msgspec
import pytest
from msgspec import Raw

from hermes.config.env import Env
from hermes.config.home import resolve_home
from hermes.ipc.client import ConversationOptions, UserInput
from hermes.ipc.conversation_service import open_in_process
from hermes.kit.clock import SystemClock
from hermes.ports.store import EnqueueItem, QueueItem
from hermes.schema.messages import Text, Trust, User
from hermes.store.sqlite import open_store
from hermes.testing.fake_openai import Reply, Script
from support.cli_process import HermesCli, fake_model_process


@pytest.mark.parametrize(("resent", "expected"), [((), 1), (("msg_left",), 0)])
def test_unread_message_is_read_once(
    tmp_path: Path, resent: tuple[str, ...], expected: int
) -> None:
    with fake_model_process(tmp_path / "model", Script(default=Reply("Well."))) as model:
        hermes = HermesCli(tmp_path, model.url)
        env = Env(hermes.env)
        home = resolve_home(env)
        with open_in_process(home, env, ConversationOptions(cwd=str(hermes.work))) as client:
            client.submit(UserInput((Text("first"),)), lambda event: None)
            session = client.state.session
        anyio.run(_store_message, home.database, session)
        start = ConversationOptions(cwd=str(hermes.work), resume=session, unheard=resent)
        with open_in_process(home, env, start) as client:
            client.submit(UserInput((Text("second"),)), lambda event: None)
        requests = model.requests("second")
        assert len([one for one in requests if "LEFT BEHIND" in str(one)]) == expected


async def _store_message(path: Path, session: str) -> None:
    word = User("msg_left", (Text("LEFT BEHIND"),), Trust.OWNER)
    body = Raw(msgspec.json.encode(word))
    async with open_store(path, SystemClock()) as store:
        await store.commit(
            EnqueueItem(QueueItem(key=word.id, queue="inbox", topic=session, body=body))
        )
