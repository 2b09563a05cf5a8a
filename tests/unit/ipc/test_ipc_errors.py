"""Errors keep their kind when they pass through the socket."""

from hermes.ipc.client import GatewayGone, InternalError, Interrupted, error_from_info, error_info
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
from hermes.schema.terminal import ErrorInfo
from support.cases import cases


@cases(
    "kind",
    [
        HermesError, UsageError, ConfigError, NotFound, SessionBusy, RateLimited, Unreachable,
        Interrupted, InternalError, GatewayGone,
    ],
)  # fmt: skip
def test_error_keeps_its_class(kind: type[HermesError]) -> None:
    error = error_from_info(error_info(kind("What happened.", hint="What to do.")))
    assert type(error) is kind
    assert (str(error), error.hint) == ("What happened.", "What to do.")
    assert error.exit_code == kind.exit_code


def test_shared_code_restores_the_most_general_class() -> None:
    assert NoModelChosen.code == ConfigError.code
    assert type(error_from_info(ErrorInfo("config", "x"))) is ConfigError


def test_unknown_code_becomes_a_plain_error() -> None:
    assert type(error_from_info(ErrorInfo("unknown_code", "x"))) is HermesError


def test_undecodable_bytes_are_replaced() -> None:
    assert error_info(UsageError("no /\udcff here")).message == "no /\ufffd here"
