"""The socket file: private, replaced when dead, kept when alive, with long paths too."""

import os
import socket
from pathlib import Path

import pytest

from hermes.ipc.client import SOCKET_NAME
from hermes.ipc.unix_socket import connect_socket, is_listening, listen, peer_uid
from hermes.schema.errors import ConfigError


@pytest.fixture(params=["short", "x" * 150])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / request.param
    path.mkdir()
    return path


def test_connects_to_the_listener_and_knows_its_user(folder: Path) -> None:
    listening = listen(folder)
    assert (folder / SOCKET_NAME).stat().st_mode & 0o777 == 0o600
    with connect_socket(folder, 1.0) as connection:
        answering, _ = listening.listener.accept()
        assert peer_uid(connection) == peer_uid(answering) == os.getuid()
        answering.close()
    listening.close()
    assert list(folder.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        connect_socket(folder, 1.0)


def test_live_socket_is_not_replaced(folder: Path) -> None:
    listening = listen(folder)
    with pytest.raises(ConfigError, match="Another gateway is already listening"):
        listen(folder)
    assert is_listening(folder)
    listening.close()


def test_dead_socket_is_replaced(folder: Path) -> None:
    dead = listen(folder)
    dead.listener.close()
    assert not is_listening(folder)
    alive = listen(folder)
    dead.close()
    assert is_listening(folder)
    alive.close()
    assert not (folder / SOCKET_NAME).exists()


def test_other_file_is_replaced(folder: Path) -> None:
    (folder / SOCKET_NAME).write_text("not a socket")
    listening = listen(folder)
    assert is_listening(folder)
    listening.close()


def test_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Cannot listen on"):
        listen(tmp_path / "nowhere")


def test_full_backlog_counts_as_listening(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / SOCKET_NAME))
        listener.listen(0)
        with connect_socket(tmp_path, 0.0):
            assert is_listening(tmp_path)
