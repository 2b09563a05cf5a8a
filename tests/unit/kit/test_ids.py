"""Ids are unique, sortable and of the known format."""

import re
import time
from datetime import UTC, datetime

from hermes.kit.ids import new_id, new_session_id


def test_ids_do_not_collide() -> None:
    assert len({new_id("msg") for _ in range(20_000)}) == 20_000


def test_an_id_is_its_prefix_and_26_characters() -> None:
    for _ in range(1000):
        assert re.fullmatch(r"run_[0-9A-HJKMNP-TV-Z]{26}", new_id("run"))


def test_later_ids_sort_behind_earlier_ones() -> None:
    earlier = new_id("msg")
    moment = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 <= moment:
        pass
    assert new_id("msg") > earlier


def test_a_session_id_tells_when_it_began() -> None:
    moment = datetime(2026, 1, 31, 23, 59, 59, tzinfo=UTC)
    made = {new_session_id(moment) for _ in range(100)}
    assert len(made) == 100
    assert all(re.fullmatch(r"20260131_235959_[0-9a-f]{6}", one) for one in made)
