"""The delivery check reports each kind of error and accepts a correct delivery."""

import pytest

from hermes.gateway.delivery import RECOVERED_MARK
from support.chat_platform.state import FakePlatform
from support.delivery_check import DeliveryError, PendingAnswers, check_delivery


@pytest.fixture
def platform() -> FakePlatform:
    platform = FakePlatform()
    for name in ("q-1", "q-2"):
        platform.say("bot", "c", "ann", name)
    platform.say("bot", "d", "bob", "/queue q-3")
    return platform


def answer(
    platform: FakePlatform, name: str, *, chat: str = "c", mark: str = "", to: str | None = None
):
    platform.post("bot", chat, f"{mark}re: {name}", to)


def test_correct_delivery_passes(platform: FakePlatform):
    answer(platform, "q-1", to="u0")
    answer(platform, "q-2")
    answer(platform, "q-2", mark=RECOVERED_MARK)
    answer(platform, "q-3", chat="d")
    report = check_delivery(platform)
    report.check()
    assert (report.asked, report.answered, report.marked) == (3, 3, 1)


def test_missing_answer_is_lost(platform: FakePlatform):
    answer(platform, "q-1")
    answer(platform, "q-3", chat="d")
    assert check_delivery(platform).lost == ["bot/c: q-2"]
    with pytest.raises(DeliveryError, match="1 lost"):
        check_delivery(platform).check()


def test_unmarked_copy_is_repeated(platform: FakePlatform):
    answer(platform, "q-1")
    answer(platform, "q-1")
    assert check_delivery(platform).repeated == ["bot/c: q-1"]


def test_answers_out_of_order_are_misordered(platform: FakePlatform):
    answer(platform, "q-2")
    answer(platform, "q-1")
    assert check_delivery(platform).misordered == ["bot/c: q-1 after q-2"]


@pytest.mark.parametrize(("chat", "to"), [("d", None), ("c", "u1")])
def test_answer_to_the_wrong_chat_or_message_is_strayed(
    platform: FakePlatform, chat: str, to: str | None
):
    answer(platform, "q-1", chat=chat, to=to)
    assert len(check_delivery(platform).misplaced) == 1


def test_question_reported_as_interrupted_is_not_lost(platform: FakePlatform):
    platform.post("bot", "d", "“/queue q-3” was interrupted and may not be done.", None)
    platform.post("bot", "c", "I will not retry it on my own.", "u0")
    report = check_delivery(platform)
    assert sorted(report.reported) == ["q-1", "q-3"]
    assert report.lost == ["bot/c: q-2"]


def test_long_answer_with_missing_lines_is_lost(platform: FakePlatform):
    platform.say("bot", "e", "eve", "q-4 long")
    answer(platform, "q-4 long", chat="e")
    assert "bot/e: q-4 line 11" in check_delivery(platform).lost


def test_all_answered_only_after_every_answer_arrived(platform: FakePlatform):
    waiting = PendingAnswers(platform)
    platform.feed("bot").after(3, 10)
    assert not waiting.all_answered()
    answer(platform, "q-1")
    platform.post("bot", "c", "· a tool", None)
    platform.edit("bot", "p1", "re: q-2")
    assert not waiting.all_answered()
    answer(platform, "q-3", chat="d")
    assert waiting.all_answered()
    platform.say("bot", "c", "ann", "q-5")
    assert not waiting.all_answered()


def test_progress_post_with_a_known_receipt_is_left_over(platform: FakePlatform):
    """Without a known receipt, a leftover progress post is only counted."""
    known = platform.post("bot", "c", "· terminal ls", None)
    platform.post("bot", "c", "· terminal pwd", None)
    report = check_delivery(platform, receipts={known.id})
    assert report.left_over == ["bot/c: · terminal ls"]
    assert report.unknown == 1
    with pytest.raises(DeliveryError, match="1 left over"):
        report.check()
