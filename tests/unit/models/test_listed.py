"""A name that a provider does not list is refused; where there is no list, it is taken."""

import pytest

from hermes.models.model_check import check_listed, is_listed
from hermes.schema.errors import UsageError


@pytest.mark.parametrize(
    ("name", "listed", "there"),
    [
        ("gpt", ["gpt"], True),
        ("gp", ["gpt"], False),
        ("llama3", ["llama3:latest"], True),
        ("llama3:8b", ["llama3:latest"], False),
        ("a/b:online", ["a/b"], True),
        ("", ["a"], False),
    ],
)
def test_what_counts_as_listed(name: str, listed: list[str], there: bool) -> None:
    assert is_listed(name, listed) is there


def test_the_nearest_are_named() -> None:
    with pytest.raises(UsageError, match="here does not list the model 'gtp-5'") as caught:
        check_listed("here", "gtp-5", ["gpt-5", "gpt-5-mini", "whisper"])
    assert "gpt-5" in caught.value.hint
    assert "whisper" not in caught.value.hint
    assert "--force" in caught.value.hint


def test_without_anything_near_the_way_to_the_list_is_named() -> None:
    with pytest.raises(UsageError) as caught:
        check_listed("here", "zzz", ["gpt-5"])
    assert "`hermes model`" in caught.value.hint


def test_no_list_refuses_nothing() -> None:
    check_listed("here", "any", [])
