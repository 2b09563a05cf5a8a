"""Errors that pass through the socket come out as the same kind of error."""

import pytest

from hermes.local.failures import error_of, trouble_of
from hermes.local.partner import Defect, GatewayGone, Interrupted, Trouble
from hermes.models.resolve import ModelUnnamed
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
        Interrupted, Defect, GatewayGone,
    ],
)  # fmt: skip
def test_an_error_keeps_its_kind(kind: type[HermesError]) -> None:
    error = error_of(trouble_of(kind("What happened.", hint="What to do.")))
    assert type(error) is kind
    assert (str(error), error.hint) == ("What happened.", "What to do.")
    assert error.exit_code == kind.exit_code


def test_of_kinds_that_share_a_code_the_general_one_is_meant() -> None:
    assert ModelUnnamed.code == ConfigError.code
    assert type(error_of(Trouble("config", "x"))) is ConfigError


def test_a_code_nobody_knows_is_an_error_all_the_same() -> None:
    assert type(error_of(Trouble("of_the_future", "x"))) is HermesError


def test_bytes_that_are_no_text_do_not_stop_an_error() -> None:
    assert trouble_of(UsageError("no /\udcff here")).message == "no /\ufffd here"
