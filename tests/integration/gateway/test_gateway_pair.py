"""Two real gateways, one running turns for the other, with a link that can be cut."""

from pathlib import Path

import anyio

from hermes.app.build import AppOptions, open_app
from hermes.app.chat_directory import ChatDirectory
from hermes.app.gateway import build_access, build_gateway
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.gateway.messages import BusyMode
from hermes.ports.channel import Channel
from hermes.schema.messages import text_of
from hermes.testing.channel import FakeChannel
from hermes.testing.fake_openai import Call, Fault, Reply, Rule, Script
from support.api_server import KEY, api_harness
from support.faulty_link import LinkBreak
from support.gateway import wait_until
from support.gateway_pair import gateway_pair, questions_in
from support.local_gateway import local_gateway

SLOWLY = Reply("x" * 20, chunk=1, pace=0.1)
SCRIPT = Script(
    rules=[
        Rule("look", [Reply("", calls=[Call("todo", {})]), Reply("I looked.")]),
        Rule("watch", [Reply("", calls=[Call("todo", {})]), Reply("I watched.", gate="watched")]),
        Rule("second", [Reply("The second answer.", chunk=4)]),
        Rule("first", [Reply("The first answer.", chunk=4)]),
        Rule("hang", [Reply("Well", fault=Fault("hang"))]),
        Rule("silent", [Reply("Here.", first_byte=1.0)]),
        Rule("slowly", [SLOWLY]),
    ]
)
IMPATIENT = """
gateway:
  proxy:
    link_timeout: 0.5
"""


async def test_conversation_continues_in_the_same_remote_session(tmp_path: Path) -> None:
    async with gateway_pair(tmp_path, SCRIPT) as both:
        local, remote = both.local, both.remote
        await local.channel.say("first?")
        await local.wait_for_posts("The first answer.")
        await local.channel.say("second?")
        await local.wait_for_posts("The first answer.", "The second answer.")
        await local.wait_until_idle()
        whole = ["first?", "The first answer.", "second?", "The second answer."]
        assert await local.texts() == whole
        assert [text_of(message) for message in await both.remote_messages()] == whole
        last = remote.model_request(1)["messages"]
        assert [one["content"] for one in last if one["role"] != "system"] == whole[:3]


async def test_remote_tools_are_used(tmp_path: Path) -> None:
    async with gateway_pair(tmp_path, SCRIPT) as both:
        local, remote = both.local, both.remote
        await local.channel.say("look!")
        await local.wait_for_posts("I looked.")
        await local.wait_until_idle()
        assert await local.texts() == ["look!", "I looked."]
        assert len(remote.model_server.requests) == 2


async def test_remote_tool_progress_is_shown_locally(tmp_path: Path) -> None:
    (tmp_path / "near").mkdir()
    async with (
        api_harness(tmp_path, SCRIPT) as remote,
        local_gateway(tmp_path / "near", remote.url, key=KEY, progress=True) as local,
    ):
        await local.channel.say("watch")
        await wait_until(lambda: local.channel.texts_in("1") == ["· todo {}"])
        remote.model_server.open_gate("watched")
        await local.wait_for_posts("I watched.")


async def test_wrong_key_is_reported_in_the_chat(tmp_path: Path) -> None:
    async with api_harness(tmp_path, SCRIPT) as remote:
        (tmp_path / "near").mkdir()
        async with local_gateway(tmp_path / "near", remote.url, key="wrong-0123456789abc") as local:
            await local.channel.say("first?")
            await wait_until(lambda: bool(local.channel.texts_in("1")))
    (reply,) = local.channel.texts_in("1")
    assert reply.startswith("⚠️ Proxy error (401): ")
    assert reply.endswith("Set GATEWAY_PROXY_KEY to the remote gateway's key.")
    assert remote.model_server.requests == []


async def test_broken_link_is_reported_and_the_conversation_continues(tmp_path: Path) -> None:
    async with gateway_pair(tmp_path, SCRIPT, config=IMPATIENT) as both:
        local = both.local
        await local.channel.say("first?")
        await local.wait_for_posts("The first answer.")
        both.link.plan = lambda: LinkBreak(down=30)
        await local.channel.say("first, again?")
        await wait_until(lambda: len(local.channel.texts_in("1")) == 2)
        await local.wait_until_idle()
        reply = local.channel.texts_in("1")[-1]
        assert reply.startswith("⚠️ Proxy connection error: ")
        both.link.plan = LinkBreak
        await local.channel.say("second?")
        await local.wait_for_posts("The first answer.", reply, "The second answer.")
        await local.wait_until_idle()
        assert await local.open_rows() == []


async def test_interrupting_message_stops_the_remote_turn(tmp_path: Path) -> None:
    async with gateway_pair(tmp_path, SCRIPT, busy=BusyMode.INTERRUPT) as both:
        local, remote = both.local, both.remote
        await local.channel.say("hang on")
        await wait_until(lambda: bool(remote.model_server.requests))
        await local.channel.say("second?")
        await wait_until(lambda: "The second answer." in local.channel.texts_in("1"))
        await local.wait_until_idle()
        assert any(line.endswith("/stop HTTP/1.1") for line in both.link.request_lines)
        assert questions_in(await both.remote_messages()) == ["hang on", "second?"]
        assert questions_in(await local.transcript()) == ["hang on", "second?"]


async def test_steering_message_reaches_the_remote_turn(tmp_path: Path) -> None:
    async with gateway_pair(tmp_path, SCRIPT, busy=BusyMode.STEER) as both:
        local, remote = both.local, both.remote
        await local.channel.say("slowly")
        await wait_until(lambda: bool(remote.model_server.requests))
        await local.channel.say("second?")
        await wait_until(lambda: bool(local.channel.texts_in("1")))
        await local.wait_until_idle()
        assert local.channel.texts_in("1") == ["x" * 20 + "\n\nThe second answer."]
        assert questions_in(await both.remote_messages()) == ["slowly", "second?"]
        assert questions_in(await local.transcript()) == ["slowly", "second?"]
        assert await local.open_rows() == []


async def test_turn_interrupted_by_local_shutdown_is_restarted(tmp_path: Path) -> None:
    """Its run was stopped remotely, so its id is unknown and the next turn is another run."""
    (tmp_path / "near").mkdir()
    (tmp_path / "far").mkdir()
    async with api_harness(tmp_path / "far", SCRIPT) as remote:
        async with local_gateway(tmp_path / "near", remote.url, key=KEY) as local:
            await local.channel.say("silent")
            await wait_until(lambda: bool(remote.model_server.requests))
        async with local_gateway(tmp_path / "near", remote.url, key=KEY) as local:
            await local.wait_for_posts("Here.")
            await local.wait_until_idle()
            assert questions_in(await local.transcript())[0] == "silent"
            assert await local.open_rows() == []


async def test_model_is_chosen_remotely(tmp_path: Path) -> None:
    home = Home(root=tmp_path, path=tmp_path)
    env = Env(
        {
            "HOME": str(tmp_path),
            "PATH": "/bin",
            "GATEWAY_PROXY_URL": "http://far.example:8642",
            "GATEWAY_ALLOWED_USERS": "ann",
        }
    )
    async with open_app(home, env, AppOptions(workspace=str(tmp_path))) as app:
        channel = FakeChannel()
        channels: dict[str, Channel] = {channel.name: channel}
        gateway = build_gateway(
            app,
            channels=channels,
            access=build_access(app, channels, multiplexed=False),
            directory=ChatDirectory(tmp_path / "chats.json", app.clock),
        )
        async with anyio.create_task_group() as group:
            group.start_soon(gateway.run)
            await channel.say("/model")
            await wait_until(lambda: len(channel.texts_in("1")) == 1)
            await channel.say("/model other")
            await wait_until(lambda: len(channel.texts_in("1")) == 2)
            await channel.say("/status")
            await wait_until(lambda: len(channel.texts_in("1")) == 3)
            group.cancel_scope.cancel()
    listing, chosen, status = channel.texts_in("1")
    assert (
        listing
        == chosen
        == (
            "The gateway at http://far.example:8642 runs the turns of this chat and chooses the "
            "model. Change the model there."
        )
    )
    assert "chosen by the gateway at" in status
