"""A person with accounts on two platforms, through a whole gateway process."""

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from emulators.mattermost.server import MattermostServer, serve_mattermost
from emulators.mattermost.state import ANN as ANN_ON_MATTERMOST
from emulators.mattermost.state import BOT, TOKEN, EmulatedMattermost
from emulators.qqbot.check import addresses
from emulators.qqbot.server import QqServer, serve_qq
from emulators.qqbot.state import ANN as ANN_ON_QQ
from emulators.qqbot.state import APP_ID, SECRET, EmulatedQq, openid
from hermes.gateway.people import People
from hermes.kit.clock import SystemClock
from support.gateway_instances import gateway_instance
from support.gateway_process import GatewaySpec
from support.kill_run import write_home

pytestmark = pytest.mark.slow

TIMEOUT = 60.0
OWNER_ON_QQ, EVE_ON_QQ = openid(7), openid(8)


class Chats:
    """Ann on Mattermost and on QQ, with Eve on QQ."""

    def __init__(self, mattermost: MattermostServer, qq: QqServer) -> None:
        self.mattermost, self.qq = mattermost.mattermost, qq.qq
        self._servers = mattermost, qq

    def spec(self, folder: Path) -> GatewaySpec:
        on_mattermost, on_qq = self._servers
        variables = {
            "QQ_APP_ID": APP_ID,
            "QQ_CLIENT_SECRET": SECRET,
            "MATTERMOST_URL": on_mattermost.url,
            "MATTERMOST_TOKEN": TOKEN,
            "MATTERMOST_ALLOWED_USERS": ANN_ON_MATTERMOST,
        }
        people = [OWNER_ON_QQ, ANN_ON_QQ, EVE_ON_QQ]
        return write_home(
            folder,
            "qqbot",
            model_url=on_qq.url,
            extra=addresses(on_qq.url),
            variables=variables,
            people=people,
        )

    async def connected(self) -> None:
        for server in self._servers:
            await server.until(lambda server=server: bool(server.connections))

    def on_mattermost(self) -> list[str]:
        return [one.text for one in self.mattermost.shown(self.mattermost.direct())]

    def on_qq(self, chat: str = ANN_ON_QQ) -> list[str]:
        return [one.text for one in self.qq.shown(chat)]

    async def sees(self, texts: Callable[[], list[str]], words: str, count: int = 1) -> str:
        """Wait until that many posts have the words, and return the last one."""

        def found() -> list[str]:
            return [text for text in texts() if words in text]

        with anyio.move_on_after(TIMEOUT) as scope, anyio.CancelScope():
            while len(found()) < count:
                async with anyio.create_task_group() as group:
                    for server in self._servers:
                        group.start_soon(self._next, server, group.cancel_scope)
        assert not scope.cancelled_caught, "\n".join([*self.on_mattermost(), *self.on_qq()])
        return found()[-1]

    async def _next(self, server: MattermostServer | QqServer, scope: anyio.CancelScope) -> None:
        await server.next_change()
        scope.cancel()


def sessions_of(home: Path, *texts: str) -> set[int]:
    """The sessions in which these were written."""
    with sqlite3.connect(f"file:{home}/hermes.db?mode=ro", uri=True) as database:
        rows = database.execute("SELECT session, body FROM messages WHERE role = 'user'").fetchall()
    return {session for session, body in rows if any(text.encode() in body for text in texts)}


async def test_accounts_are_linked_with_a_code_and_a_session_goes_along(tmp_path: Path) -> None:
    mattermost, qq = EmulatedMattermost(), EmulatedQq()
    direct, room = mattermost.direct(), mattermost.add_channel("Room", BOT, ANN_ON_MATTERMOST)
    async with serve_mattermost(mattermost) as first, serve_qq(qq) as second:
        chats = Chats(first, second)
        spec = chats.spec(tmp_path)
        async with gateway_instance(spec) as instance, anyio.create_task_group() as group:
            group.start_soon(instance.watch)
            await instance.wait_ready()
            await chats.connected()
            mattermost.say(room, "@hermes /link")
            in_room = lambda: [one.text for one in mattermost.shown(room)]  # noqa: E731
            await chats.sees(in_room, "Others can read this chat")
            qq.say("/link", chat=OWNER_ON_QQ)
            await chats.sees(lambda: chats.on_qq(OWNER_ON_QQ), "hermes people link qqbot:")

            mattermost.say(direct, "/link")
            shown = await chats.sees(chats.on_mattermost, "Send this from your other account")
            code = re.findall(r"/link ([A-Z2-9]{8})", shown)[0]
            qq.say(f"/link {code} yes")
            await chats.sees(chats.on_qq, "Check first whose code this is")
            qq.say(f"/link {code}")
            await chats.sees(chats.on_qq, f"the code of mattermost:{ANN_ON_MATTERMOST} (ann)")
            people = People(tmp_path / "home" / "platforms" / "people", SystemClock())
            assert people.all() == (), "it must be confirmed"
            qq.say(f"/link {code} yes")
            await chats.sees(chats.on_qq, "Your accounts are linked")
            await chats.sees(
                chats.on_mattermost, f"qqbot:{ANN_ON_QQ} is now linked with your account"
            )
            qq.say(f"/link {code} yes", chat=EVE_ON_QQ)
            await chats.sees(
                lambda: chats.on_qq(EVE_ON_QQ), "wrong, has expired, or was made by this account"
            )
            assert [person.names for person in people.all()] == [
                [f"mattermost:{ANN_ON_MATTERMOST}", f"qqbot:{ANN_ON_QQ}"]
            ]
            assert [one.ids for one in people.all()[0].accounts] == [
                (ANN_ON_MATTERMOST,), (ANN_ON_QQ,),
            ]  # fmt: skip

            mattermost.say(direct, "q-1 on Mattermost")
            await chats.sees(chats.on_mattermost, "re: q-1")
            mattermost.say(direct, "/handoff qqbot")
            await chats.sees(chats.on_mattermost, "Handed off to qqbot")
            await chats.sees(chats.on_qq, "from mattermost continues here")
            qq.say("q-2 on QQ")
            await chats.sees(chats.on_qq, "re: q-2")
            mattermost.say(direct, "q-3 in a new session")
            await chats.sees(chats.on_mattermost, "re: q-3")
            qq.say("q-4 of somebody else", chat=EVE_ON_QQ)
            await chats.sees(lambda: chats.on_qq(EVE_ON_QQ), "re: q-4")
            instance.end()
    home = tmp_path / "home"
    assert len(sessions_of(home, "q-1 on", "q-2 on")) == 1
    assert len(sessions_of(home, "q-1 on", "q-3 in", "q-4 of")) == 3
    with sqlite3.connect(home / "hermes.db") as database:
        owners = {row[0] for row in database.execute("SELECT principal FROM sessions")}
    assert owners >= {f"mattermost:{ANN_ON_MATTERMOST}", f"qqbot:{EVE_ON_QQ}"}
