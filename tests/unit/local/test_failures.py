"""Errors that pass through the socket come out as the same kind of error."""

import pytest

from hermes.ipc.client import ErrorInfo, GatewayGone, InternalError, Interrupted
from hermes.ipc.errors import error_from_info, error_info
from hermes.models.resolver import NoModelChosen
from hermes.schema.errors import (
    ConfigError,
    HermesError,
    NotFound,
    RateLimited,
    SessionBusy,
    Unreachable,
    UsageError,
)


@pytest.mark.parametrize(
    "kind",
    [
        HermesError, UsageError, ConfigError, NotFound, SessionBusy, RateLimited, Unreachable,
        Interrupted, InternalError, GatewayGone,
    ],
)  # fmt: skip
def test_an_error_keeps_its_kind(kind: type[HermesError]) -> None:
    error = error_from_info(error_info(kind("What happened.", hint="What to do.")))
    assert type(error) is kind
    assert (str(error), error.hint) == ("What happened.", "What to do.")
    assert error.exit_code == kind.exit_code


def test_of_kinds_that_share_a_code_the_general_one_is_meant() -> None:
    assert NoModelChosen.code == ConfigError.code
    assert type(error_from_info(ErrorInfo("config", "x"))) is ConfigError


def test_a_code_nobody_knows_is_an_error_all_the_same() -> None:
    assert type(error_from_info(ErrorInfo("of_the_future", "x"))) is HermesError


def test_bytes_that_are_no_text_do_not_stop_an_error() -> None:
    assert error_info(UsageError("no /\udcff here")).message == "no /\ufffd here"
