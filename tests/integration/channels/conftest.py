"""Servers that the tests of several channels' files share."""

from collections.abc import Generator

import pytest

from support.debian import install_program
from support.irc import InspIrcd, run_inspircd
from support.mail import Dovecot, run_dovecot
from support.xmpp import Prosody, run_prosody


@pytest.fixture(scope="module")
def dovecot() -> Generator[Dovecot]:
    """Installed if we may: the emulator runs the same tests where it cannot be."""
    if reason := install_program("dovecot", "dovecot-imapd"):
        pytest.skip(reason)
    with run_dovecot() as one:
        yield one


@pytest.fixture(scope="module")
def inspircd() -> Generator[InspIrcd]:
    if reason := install_program("inspircd", "inspircd"):
        pytest.skip(reason)
    with run_inspircd() as one:
        yield one


@pytest.fixture(scope="module")
def prosody() -> Generator[Prosody]:
    if reason := install_program("prosody", "prosody"):
        pytest.skip(reason)
    with run_prosody() as one:
        yield one
