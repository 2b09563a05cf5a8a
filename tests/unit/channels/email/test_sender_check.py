"""A sender is believed only if the receiving server says that the domain proved it."""

import pytest

from hermes.channels.email.sender_check import parse_results, problem_with_sender

ANN = "ann@people.example"


@pytest.mark.parametrize(
    "header",
    [
        "mx.example; dmarc=pass header.from=people.example",
        "mx.example; dkim=pass header.d=people.example header.s=k1",
        "mx.example; dkim=pass header.i=@people.example header.b=abc=",
        "mx.example; dkim = pass header.d = people.example",
        "mx.example 1; spf=pass smtp.mailfrom=bounce@people.example",
        "mx.example; dkim=fail (a; b) header.d=x.net;\r\n\tdmarc=pass header.from=people.example",
        'mx.example; dkim=pass reason="good; enough" header.d="people.example"',
    ],
)
def test_domain_that_passed_is_believed(header: str) -> None:
    assert problem_with_sender(ANN, [header], "mx.example") == ""


@pytest.mark.parametrize(
    "header",
    [
        "mx.example; none",
        "mx.example; dkim=fail header.d=people.example",
        "mx.example; dkim=pass header.d=evil.example",
        "mx.example; dkim=pass header.d=evilpeople.example",
        "mx.example; dkim=pass header.d=example",
        "mx.example; dkim=pass (header.d=people.example) header.d=evil.example",
        "mx.example; spf=pass smtp.mailfrom=people.example@evil.example",
        "mx.example; dmarc=pass",
        "mx.example; dkim=pass header.d=people.example; dmarc=fail header.from=people.example",
        "mx.example; x=dkim=pass header.d=people.example",
        "mx.example; dkim=pass header.d=mail.people.example",
        'mx.example; spf=pass smtp.mailfrom="x@people.example"@evil.example',
        'mx.example; spf=pass smtp.mailfrom="x@people.example"',
        'mx.example; dkim=pass header.i="x@people.example"@evil.example',
        'mx.example; dkim=pass header.i="a" header.i=@people.example',
        'mx.example; spf=pass smtp.mailfrom="("@x.net; dmarc=fail; x=y z=")x@people.example"@x.net',
        'mx.example; dkim=pass header.d=people.example; a="("; dmarc=fail; b=")"',
        'mx.example; dkim=pass header.d=people.example; x="',
        "mx.example; dkim=pass header.d=people.example (",
        "",
    ],
)
def test_other_results_prove_nothing(header: str) -> None:
    assert problem_with_sender(ANN, [header], "mx.example")


def test_only_the_topmost_header_counts() -> None:
    good = "mx.example; dmarc=pass header.from=people.example"
    assert problem_with_sender(ANN, ["mx.example; dmarc=fail", good], "mx.example")
    assert problem_with_sender(ANN, [], "mx.example")


def test_pinned_server_must_have_written_the_header() -> None:
    forged = "evil.example; dmarc=pass header.from=people.example"
    assert "evil.example" in problem_with_sender(ANN, [forged], "mx.example")
    assert problem_with_sender(ANN, [forged.replace("evil", "MX")], "mx.example") == ""


def test_no_sender_is_trusted_without_a_pinned_server() -> None:
    header = "mx.example; dmarc=pass header.from=people.example"
    assert "EMAIL_AUTHSERV_ID" in problem_with_sender(ANN, [header], "")


def test_nested_comments_are_left_out() -> None:
    results = parse_results("mx.example (a (b) c); spf=pass (d) smtp.mailfrom=a.example")
    (method,) = results.methods
    assert (method.name, method.result, method.domains) == ("spf", "pass", ("a.example",))


@pytest.mark.parametrize("part", ["(", "()", "a", '"', "=", "a= ", "= ", ";", "\\"])
def test_large_headers_are_read_in_linear_time(part: str) -> None:
    # With a second look at each character this would take minutes.
    parse_results(f"mx.example; {part * 50_000}")
