"""An encrypted secret opens only with its key and for its owner."""

import base64
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes.api.callbacks import KEY_FILE, SecretBox, SecretUnreadable
from hermes.schema.errors import ConfigError

URL = "https://example.com/hook"


@given(st.text(min_size=1, max_size=256))
@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    max_examples=30,
)
def test_encrypted_secret_can_be_decrypted(tmp_path: Path, secret: str) -> None:
    box = SecretBox(tmp_path / KEY_FILE)
    encrypted = box.encrypt(secret, URL)
    assert SecretBox(tmp_path / KEY_FILE).decrypt(encrypted, URL) == secret
    assert box.encrypt(secret, URL) != encrypted


def test_key_is_private_and_created_once(tmp_path: Path) -> None:
    path = tmp_path / KEY_FILE
    SecretBox(path).encrypt("a secret of mine", URL)
    first = path.read_bytes()
    SecretBox(path).encrypt("another secret", URL)
    assert path.read_bytes() == first
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_any_change_is_detected(tmp_path: Path) -> None:
    box = SecretBox(tmp_path / KEY_FILE)
    encrypted = box.encrypt("a secret of mine", URL)
    with pytest.raises(SecretUnreadable):
        box.decrypt(encrypted, "https://example.com/elsewhere")
    data = base64.b64decode(encrypted)
    for position in (0, 20, len(data) - 1):
        changed = bytes(one ^ (position == at) for at, one in enumerate(data))
        with pytest.raises(SecretUnreadable):
            box.decrypt(base64.b64encode(changed).decode(), URL)
    for other in ("", "not base64", encrypted[:20]):
        with pytest.raises(SecretUnreadable):
            box.decrypt(other, URL)


def test_secret_is_unreadable_without_its_key(tmp_path: Path) -> None:
    box = SecretBox(tmp_path / KEY_FILE)
    encrypted = box.encrypt("a secret of mine", URL)
    (tmp_path / KEY_FILE).unlink()
    with pytest.raises(SecretUnreadable):
        box.decrypt(encrypted, URL)
    (tmp_path / KEY_FILE).write_bytes(b"short")
    with pytest.raises(SecretUnreadable):
        box.decrypt(encrypted, URL)
    with pytest.raises(ConfigError):
        box.encrypt("a secret of mine", URL)
