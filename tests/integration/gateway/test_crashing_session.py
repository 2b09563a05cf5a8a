"""A session that kills the program repeatedly is parked, and others are answered."""

from pathlib import Path

from hermes.gateway.chat_runs import ActorRules
from support.restarted_gateway import restarted_gateway


async def test_session_that_kills_the_program_is_parked(tmp_path: Path) -> None:
    times = 1 + ActorRules().resumes
    async with restarted_gateway(tmp_path) as chat:
        chat.say("q-1")
        for _ in range(times):
            await chat.crash_at("recorder.before_end")
        assert chat.questions == ["q-1"] * times
        async with chat.run():
            await chat.wait_for_post("I will not retry it on my own")
            chat.say("q-2", chat="c2")
            await chat.wait_for_post("re: q-2", "c2")
        assert chat.questions == [*["q-1"] * times, "q-2"]
        assert not chat.posts("re: q-1")
