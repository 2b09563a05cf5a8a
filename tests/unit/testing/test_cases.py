"""Cases in one test: each of them runs, and the failing ones are named."""

import pytest

from support.cases import cases


def test_every_case_runs_and_the_failing_ones_are_shown() -> None:
    seen: list[tuple[int, str]] = []

    @cases("number", [1, 2, 3])
    @cases(("word", "expected"), [("a", 1), ("b", 3)])
    def check(number: int, word: str, expected: int) -> None:
        seen.append((number, word))
        assert number != expected

    with pytest.raises(ExceptionGroup, match="2 of 3 cases failed") as caught:
        check()
    assert len(seen) == 6
    first, second = caught.value.exceptions
    assert first.__notes__ == ["case: {'word': 'a', 'expected': 1}", "case: {'number': 1}"]
    assert second.__notes__ == ["case: {'word': 'b', 'expected': 3}", "case: {'number': 3}"]


def test_single_failure_is_raised_itself() -> None:
    @cases("text", ["1", "x"])
    def check(text: str) -> None:
        int(text)

    with pytest.raises(ValueError, match="invalid literal"):
        check()


def test_missing_cases_fail() -> None:
    @cases("text", [])
    def check(text: str) -> None:
        raise AssertionError(text)

    with pytest.raises(AssertionError, match="no cases"):
        check()
