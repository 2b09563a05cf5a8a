"""A failed connection is explained in words, not by the number of an error."""

import errno
import smtplib
import socket
import ssl

import pytest

from hermes.channels.proxies import connect_failure


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name unknown"), "the name cannot be resolved"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "at 127.0.0.1:1"), "Connection refused"),
        (ssl.SSLError(1, "wrong version"), "wrong version"),
        (smtplib.SMTPServerDisconnected("closed"), "closed"),
        (OSError("All connection attempts failed"), "All connection attempts failed"),
    ],
)
def test_reason_of_a_failed_connection(error: OSError, says: str) -> None:
    assert connect_failure(error).endswith(says)
