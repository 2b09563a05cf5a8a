"""A sealed secret opens with its key, for what it belongs to, and never otherwise."""

import base64
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes.api.secret_box import KEY_FILE, SecretBox, SecretUnreadable
from hermes.schema.errors import ConfigError

URL = "https://example.com/hook"


@given(st.text(min_size=1, max_size=256))
@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    max_examples=30,
)
def test_what_is_closed_opens_again(tmp_path: Path, secret: str) -> None:
    seal = SecretBox(tmp_path / KEY_FILE)
    sealed = seal.closed(secret, URL)
    assert SecretBox(tmp_path / KEY_FILE).opened(sealed, URL) == secret
    assert seal.closed(secret, URL) != sealed


def test_the_key_is_private_and_made_once(tmp_path: Path) -> None:
    path = tmp_path / KEY_FILE
    SecretBox(path).closed("a secret of mine", URL)
    first = path.read_bytes()
    SecretBox(path).closed("another secret", URL)
    assert path.read_bytes() == first
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_whatever_was_changed_is_noticed(tmp_path: Path) -> None:
    seal = SecretBox(tmp_path / KEY_FILE)
    sealed = seal.closed("a secret of mine", URL)
    with pytest.raises(SecretUnreadable):
        seal.opened(sealed, "https://example.com/elsewhere")
    data = base64.b64decode(sealed)
    for place in (0, 20, len(data) - 1):
        changed = bytes(one ^ (place == at) for at, one in enumerate(data))
        with pytest.raises(SecretUnreadable):
            seal.opened(base64.b64encode(changed).decode(), URL)
    for other in ("", "no base64", sealed[:20]):
        with pytest.raises(SecretUnreadable):
            seal.opened(other, URL)


def test_without_its_key_it_stays_closed(tmp_path: Path) -> None:
    seal = SecretBox(tmp_path / KEY_FILE)
    sealed = seal.closed("a secret of mine", URL)
    (tmp_path / KEY_FILE).unlink()
    with pytest.raises(SecretUnreadable):
        seal.opened(sealed, URL)
    (tmp_path / KEY_FILE).write_bytes(b"short")
    with pytest.raises(SecretUnreadable):
        seal.opened(sealed, URL)
    with pytest.raises(ConfigError):
        seal.closed("a secret of mine", URL)
