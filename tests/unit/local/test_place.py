"""Where the socket lies: private, replaced when dead, kept when alive, however long the path."""

import os
import socket
from pathlib import Path

import pytest

from hermes.ipc.client import SOCKET
from hermes.ipc.unix_socket import connect_socket, is_listening, listen, peer_uid
from hermes.schema.errors import ConfigError


@pytest.fixture(params=["short", "x" * 150])
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / request.param
    path.mkdir()
    return path


def test_whoever_listens_is_reached_and_known(folder: Path) -> None:
    place = listen(folder)
    assert (folder / SOCKET).stat().st_mode & 0o777 == 0o600
    with connect_socket(folder, 1.0) as connection:
        answering, _ = place.listener.accept()
        assert peer_uid(connection) == peer_uid(answering) == os.getuid()
        answering.close()
    place.close()
    assert list(folder.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        connect_socket(folder, 1.0)


def test_a_living_one_is_not_replaced(folder: Path) -> None:
    place = listen(folder)
    with pytest.raises(ConfigError, match="Another gateway is already listening"):
        listen(folder)
    assert is_listening(folder)
    place.close()


def test_what_a_dead_one_left_is_replaced(folder: Path) -> None:
    dead = listen(folder)
    dead.listener.close()
    assert not is_listening(folder)
    living = listen(folder)
    dead.close()
    assert is_listening(folder)
    living.close()
    assert not (folder / SOCKET).exists()


def test_a_file_of_another_kind_gives_way(folder: Path) -> None:
    (folder / SOCKET).write_text("not a socket")
    place = listen(folder)
    assert is_listening(folder)
    place.close()


def test_a_folder_that_is_not_there_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Cannot listen on"):
        listen(tmp_path / "nowhere")


def test_a_full_backlog_counts_as_somebody(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / SOCKET))
        listener.listen(0)
        with connect_socket(tmp_path, 0.0):
            assert is_listening(tmp_path)
