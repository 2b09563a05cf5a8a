"""What the Slack channel sends, and the errors of Slack."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from emulators.slack.mrkdwn import shown_text
from hermes.channels.slack.web_api import MissingScope, NotInChannel
from hermes.ports.channel import (
    Choice,
    Choices,
    Markup,
    NotSent,
    Outbound,
    TargetGone,
    Throttled,
)
from hermes.schema.messages import Text
from hermes.schema.scope import Address
from support.slack import (
    BOB,
    SlackBench,
    slack_bench,
)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[SlackBench]:
    async with slack_bench(tmp_path) as one:
        yield one


class TestPosts:
    async def test_text_with_markup_is_sent_as_text(self, bench: SlackBench) -> None:
        post = Outbound((Text("*bold* &lt;x&gt;"),), markup=Markup.SLACK, plain="bold <x>")
        receipt = await bench.channel.send(bench.home, post)
        sent = bench.slack.messages[bench.home.chat, receipt.id]
        assert sent.object["blocks"] == []
        assert (shown_text(sent), sent.thread) == ("bold <x>", bench.home.thread)

    async def test_long_answer_can_be_edited_in(self, bench: SlackBench) -> None:
        """Edited text is limited to 4,000 characters, blocks are longer."""
        receipt = await bench.channel.send(bench.home, Outbound((Text("…"),)))
        code = "```\n" + "\n".join(f"line {n} &lt;" for n in range(500)) + "\n```"
        text = f"*Title*\n\n{code}\n\n" + "word " * 500
        await bench.channel.edit(receipt, Outbound((Text(text),), markup=Markup.SLACK))
        shown = shown_text(bench.slack.messages[bench.home.chat, receipt.id])
        assert [line for line in shown.split("\n") if line.startswith("line ")] == [
            f"line {n} <" for n in range(500)
        ]
        assert shown.count("word") == 500

    async def test_edit_removes_the_buttons(self, bench: SlackBench) -> None:
        question = Outbound(
            (Text("Sure?"), Choices((Choice("Allow", "q:1"), Choice("Deny", "q:2"))))
        )
        receipt = await bench.channel.send(bench.home, question)
        post = bench.slack.messages[bench.home.chat, receipt.id]
        styles = [one.get("style") for one in post.object["blocks"][-1]["elements"]]  # pyright: ignore[reportIndexIssue, reportUnknownVariableType, reportUnknownMemberType]
        assert styles == ["primary", "danger"]
        await bench.channel.edit(receipt, Outbound((Text("Allowed."),), markup=Markup.SLACK))
        assert post.buttons() == {}
        assert shown_text(post) == "Allowed."

    async def test_rich_blocks_and_broadcast(self, tmp_path: Path) -> None:
        extra = {"rich_blocks": True, "reply_broadcast": True}
        async with slack_bench(tmp_path, extra=extra) as bench:
            text = "one\n\n———\n\ntwo"
            post = Outbound((Text(text),), markup=Markup.SLACK, plain=text, key="k")
            receipt = await bench.channel.send(bench.home, post)
            sent = bench.slack.messages[bench.home.chat, receipt.id].object
        kinds = [one["type"] for one in sent["blocks"]]  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
        assert kinds == ["section", "divider", "section"]
        assert sent["subtype"] == "thread_broadcast"

    async def test_person_is_written_to_directly(self, bench: SlackBench) -> None:
        receipt = await bench.channel.send(Address("slack", BOB), Outbound((Text("hi"),)))
        assert receipt.address.chat == BOB
        assert [shown_text(one) for one in bench.slack.posts(bench.slack.direct(BOB))] == ["hi"]

    async def test_refusals_have_errors_of_their_own(self, bench: SlackBench) -> None:
        slack = bench.slack
        foreign = slack.add_channel("foreign", member=False)
        post = Outbound((Text("x"),))
        with pytest.raises(NotInChannel) as caught:
            await bench.channel.send(Address("slack", foreign), post)
        assert "/invite" in caught.value.hint
        with pytest.raises(TargetGone):
            await bench.channel.send(Address("slack", "C404"), post)
        slack.workspace.scopes -= {"chat:write"}
        with pytest.raises(MissingScope, match="needs chat:write"):
            await bench.channel.send(bench.home, post)
        bench.server.failing["chat.postMessage"] = "internal_error"
        slack.workspace.scopes |= {"chat:write"}
        with pytest.raises(Exception, match="internal_error") as unknown:
            await bench.channel.send(bench.home, post)
        assert not isinstance(unknown.value, NotSent), "it may have been posted"

    async def test_throttled_method_pauses_without_a_call(self, bench: SlackBench) -> None:
        bench.server.throttled = 2.0
        post = Outbound((Text("x"),))
        for _ in range(2):
            with pytest.raises(Throttled) as caught:
                await bench.channel.send(bench.home, post)
        assert 0 < caught.value.wait <= 2.0
        assert bench.server.calls.count("chat.postMessage") == 1
        bench.server.throttled = 0.0
        other = Address("slack", bench.slack.add_channel())
        await bench.channel.send(other, post)

    async def test_edits_leave_a_part_of_the_limit_to_answers(self, bench: SlackBench) -> None:
        receipt = await bench.channel.send(bench.home, Outbound((Text("…"),)))

        async def edit_often(post: Outbound) -> None:
            for _ in range(51):
                await bench.channel.edit(receipt, post)

        with pytest.raises(Throttled) as refused:
            await edit_often(Outbound((Text("growing"),), progress=True))
        assert refused.value.one_kind, "an answer can still be posted"
        assert bench.server.calls.count("chat.update") < 35
        with pytest.raises(NotSent) as caught:
            await edit_often(Outbound((Text("the answer"),), markup=Markup.SLACK, plain="it"))
        assert not isinstance(caught.value, Throttled), "it is sent as a new post at once"
        assert bench.server.calls.count("chat.update") == 50
        assert bench.server.limits.refused == 0

    async def test_reaction_replaces_the_one_before(self, bench: SlackBench) -> None:
        message = bench.slack.messages[bench.home.chat, bench.home.thread or ""]
        for sign in ("👀", "👀", "✅"):
            await bench.channel.react(bench.home, message.id, sign)
        assert [name for _, name in message.reactions] == ["white_check_mark"]
        with pytest.raises(NotSent):
            await bench.channel.react(bench.home, message.id, "🦖")
