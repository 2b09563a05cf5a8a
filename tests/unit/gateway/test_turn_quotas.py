"""Turn quotas, counted across restarts."""

from pathlib import Path

from hermes.gateway.messages import Admitted, InboxMessage
from hermes.gateway.roles import Quota, RolePermissions
from hermes.gateway.user_limits import TurnQuotas
from hermes.kit.clock import Clock
from hermes.ports.channel import Inbound
from hermes.schema.scope import Role
from hermes.store.sqlite import open_store
from hermes.testing.clock import FakeClock
from support.gateway import gateway_harness, session_key_of


def powers(platform: str, role: Role) -> RolePermissions:
    return RolePermissions(quota=Quota(per_hour=2)) if role is Role.GUEST else RolePermissions()


async def admit_guest(inbound: Inbound) -> Admitted:
    role = Role.OWNER if inbound.sender == "me" else Role.GUEST
    return Admitted(key=session_key_of(inbound), principal=f"fake:{inbound.sender}", role=role)


class OtherProcessQuotas:
    """Quotas with a separate store connection, like another process."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock

    async def refusal(self, message: InboxMessage) -> str:
        async with open_store(self._path / "hermes.db", self._clock) as store:
            return await TurnQuotas(store, self._clock, powers).rejection(message)


async def test_third_question_in_an_hour_is_refused(tmp_path: Path) -> None:
    clock = FakeClock()
    counted = OtherProcessQuotas(tmp_path, clock)
    async with gateway_harness(
        tmp_path, clock=clock, authorize=admit_guest, rejection=counted.refusal
    ) as harness:
        for text in ("one", "two"):
            await harness.channel.say(text)
            await harness.wait_until_idle()
        await harness.channel.say("three")
        refused = "The limit here is 2 turns per hour. Try again in 60 minutes."
        await harness.wait_for_posts("re: one", "re: two", refused)
        assert await harness.texts() == ["one", "re: one", "two", "re: two"]
        assert await harness.open_rows() == []
        for text in ("four", "five", "six"):
            await harness.channel.say(text, chat="2", sender="me")
            await harness.wait_until_idle()
        await harness.wait_for_posts("re: four", "re: five", "re: six", chat="2")
        await clock.advance(3601)
        await harness.channel.say("seven")
        await harness.wait_for_posts("re: one", "re: two", refused, "re: seven")


async def test_shared_chat_counts_turns_per_user(tmp_path: Path) -> None:
    clock = FakeClock()
    counted = OtherProcessQuotas(tmp_path, clock)
    async with gateway_harness(
        tmp_path, clock=clock, authorize=admit_guest, rejection=counted.refusal
    ) as harness:
        # The session belongs to the first speaker.
        for text, sender in (("one", "ann"), ("two", "bob"), ("three", "bob")):
            await harness.channel.say(text, sender=sender)
            await harness.wait_until_idle()
        await harness.channel.say("four", sender="ann")
        await harness.wait_until_idle()
        refused = "The limit here is 2 turns per hour. Try again in 60 minutes."
        await harness.channel.say("five", sender="bob")
        await harness.wait_for_posts("re: one", "re: two", "re: three", "re: four", refused)
        await harness.channel.say("six", chat="2", sender="bob")
        await harness.wait_for_posts(refused, chat="2")
