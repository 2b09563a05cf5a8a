"""A message is answered even if its delivering task is cancelled while it is stored."""

import asyncio
import threading
from pathlib import Path

import anyio

from hermes.kit.failpoints import watch_failpoints
from support.gateway import gateway_harness, make_inbound


async def test_message_with_cancelled_intake_is_answered_when_repeated(
    tmp_path: Path,
) -> None:
    loop = asyncio.get_running_loop()
    scope, gone = anyio.CancelScope(), threading.Event()

    async with gateway_harness(tmp_path) as harness:
        await harness.channel.type(make_inbound("hello", "1"))
        await harness.wait_for_posts("re: hello")
        await harness.wait_until_idle()

        def cut(name: str) -> None:
            """Cancel the delivering task while the message is being stored."""
            if name == "writer.before_commit" and not gone.is_set():
                loop.call_soon_threadsafe(scope.cancel)
                assert gone.wait(20)

        with watch_failpoints(cut):
            with scope:
                await harness.gateway.intake.accept(make_inbound("again", "2"))
            assert scope.cancelled_caught
            gone.set()
        assert harness.channel.texts_in("1") == ["re: hello"]
        await harness.channel.type(make_inbound("again", "2"))
        await harness.wait_for_posts("re: hello", "re: again")
