"""Model names that a provider does not list are refused; without a list they are accepted."""

import pytest

from hermes.models.discovery import check_listed, is_listed
from hermes.schema.errors import UsageError
from support.cases import cases


@cases(
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
def test_is_listed(name: str, listed: list[str], there: bool) -> None:
    assert is_listed(name, listed) is there


def test_similar_names_are_suggested() -> None:
    with pytest.raises(UsageError, match="here does not list the model 'gtp-5'") as caught:
        check_listed("here", "gtp-5", ["gpt-5", "gpt-5-mini", "whisper"])
    assert "gpt-5" in caught.value.hint
    assert "whisper" not in caught.value.hint
    assert "--force" in caught.value.hint


def test_without_similar_names_the_list_is_hinted_at() -> None:
    with pytest.raises(UsageError) as caught:
        check_listed("here", "zzz", ["gpt-5"])
    assert "`hermes model`" in caught.value.hint


def test_empty_list_accepts_any_name() -> None:
    check_listed("here", "any", [])
