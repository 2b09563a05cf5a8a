"""Follow-ups of a remote gateway reach the chat once, also after a restart."""

from pathlib import Path

import anyio

from hermes.api.turn_gate import SOURCE
from hermes.schema.scope import Address, Scope
from hermes.testing.fake_openai import Reply, Rule, Script
from support.api_server import KEY, ApiHarness, api_harness
from support.faulty_link import random_breaks
from support.gateway import make_inbound, wait_until
from support.gateway_pair import gateway_pair, questions_in
from support.local_gateway import local_gateway, session_of
from support.polling import pause

SCRIPT = Script(
    rules=[
        Rule("job is done", [Reply("The build is ready.")]),
        Rule("build", [Reply("I began.")]),
        Rule("thanks", [Reply("You are welcome.")]),
    ]
)


async def end_job(remote: ApiHarness, session: str, number: int = 1) -> None:
    """A background job of that session ends on the remote side."""
    scope = Scope("default", session, "run", "", address=Address(SOURCE, session))
    await remote.app.store.commit(
        *remote.app.followups.rows(scope, f"job-{number}", "The job is done.")
    )
    remote.app.followups.wake(scope)


async def test_finished_job_is_reported_in_the_chat(tmp_path: Path) -> None:
    async with gateway_pair(tmp_path, SCRIPT) as both:
        local = both.local
        await local.channel.say("build it")
        await local.wait_for_posts("I began.")
        await end_job(both.remote, await session_of(local))
        await local.wait_for_posts("I began.", "The build is ready.")
        await local.wait_until_idle()
        # No turn was run there except the one that reported it.
        assert len(both.remote.model_server.requests) == 2
        await local.channel.say("thanks")
        await local.wait_for_posts("I began.", "The build is ready.", "You are welcome.")
        await local.wait_until_idle()
        questions = questions_in(await both.remote_messages())
        assert [one for one in questions if "job" not in one] == ["build it", "thanks"]
        assert await local.open_rows() == []


async def test_follow_up_over_a_bad_link_is_reported_once(tmp_path: Path) -> None:
    async with gateway_pair(tmp_path, SCRIPT) as both:
        local = both.local
        await local.channel.say("build it")
        await local.wait_for_posts("I began.")
        both.link.plan = random_breaks(5, max_bytes=1_500, share=0.7)
        both.link.hang_up()
        for number in range(3):
            await end_job(both.remote, await session_of(local), number)
            expected = ["I began.", *["The build is ready."] * (number + 1)]
            with anyio.fail_after(60):
                while local.channel.texts_in("1") != expected:
                    await pause()
        await local.wait_until_idle()
        assert len(both.remote.model_server.requests) == 4


async def test_follow_up_while_down_is_reported_later(tmp_path: Path) -> None:
    (tmp_path / "near").mkdir()
    (tmp_path / "far").mkdir()
    async with api_harness(tmp_path / "far", SCRIPT) as remote:
        async with local_gateway(tmp_path / "near", remote.url, key=KEY) as local:
            await local.channel.say("build it")
            await local.wait_for_posts("I began.")
            await local.wait_until_idle()
            session = await session_of(local)
        await end_job(remote, session)
        await wait_until(lambda: len(remote.model_server.requests) == 2)
        async with local_gateway(tmp_path / "near", remote.url, key=KEY) as local:
            await local.wait_for_posts("The build is ready.")
            await local.wait_until_idle()
        async with local_gateway(tmp_path / "near", remote.url, key=KEY) as local:
            await local.channel.type(make_inbound("thanks", "another"))
            await local.wait_for_posts("You are welcome.")
            await local.wait_until_idle()
            # What was reported before is not repeated.
            assert local.channel.texts_in("1") == ["You are welcome."]
