"""Which URLs count as public."""

from hermes.kit.hosts import is_public_url, parse_http_url
from support.cases import cases

PUBLIC = [
    "https://example.com/hook",
    "http://example.com:8080/a?b=c",
    "https://93.184.216.34/",
    "https://[2606:2800:220:1:248:1893:25c8:1946]/",
    "HTTPS://EXAMPLE.COM./",
]
PRIVATE = [
    "http://127.0.0.1/",
    "http://127.1/",
    "http://0x7f000001/",
    "http://017700000001/",
    "http://2130706433/",
    "http://0.0.0.0/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://192.168.1.1/",
    "http://169.254.169.254/latest/meta-data",
    "http://100.64.0.1/",
    "http://224.0.0.1/",
    "http://[::1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fd00::1]/",
    "http://[2002:7f00:1::]/",
    "http://[::ffff:0:127.0.0.1]/",
    "http://[5f00::1]/",
    "http://[3fff:123::1]/",
    "http://localhost/",
    "http://LOCALHOST./",
    "http://printer/",
    "http://nas.local/",
    "http://db.internal/",
]
INVALID = [
    "",
    "example.com",
    "ftp://example.com/",
    "file:///etc/passwd",
    "http://",
    "http:///path",
    "https://user@example.com/",
    "https://user:word@example.com/",
    "https://example.com:0/",
    "https://example.com:99999/",
    "https://example.com/a b",
    "https://example.com\\@10.0.0.1/",
    "https://example.com/\r\nHost: x",
    "https://exämple.com/",
    "https://[::1",
]


@cases("url", PUBLIC)
def test_public_url_is_accepted(url: str) -> None:
    assert is_public_url(url)


@cases("url", PRIVATE)
def test_private_url_is_rejected_in_any_notation(url: str) -> None:
    assert parse_http_url(url) is not None
    assert not is_public_url(url)


@cases("url", INVALID)
def test_invalid_url_is_rejected(url: str) -> None:
    assert parse_http_url(url) is None
    assert not is_public_url(url)
