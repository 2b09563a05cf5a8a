"""Browsers have the names that people know them by."""

import pytest

from hermes.web.browser_names import browser_name

CHROME = "AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0.0.0"
IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_1 like Mac OS X) AppleWebKit/605.1.15"


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
         "Firefox 140, Linux"),
        (f"Mozilla/5.0 (Windows NT 10.0; Win64; x64) {CHROME} Safari/537.36 Edg/130.0.0.0",
         "Edge 130, Windows"),
        (f"Mozilla/5.0 (Linux; Android 10; K) {CHROME} Mobile Safari/537.36",
         "Chrome 130, Android"),
        (f"{IPHONE} (KHTML, like Gecko) Version/18.1 Mobile/15E148 Safari/604.1",
         "Safari 18, iPhone"),
        ("curl/8.5.0", "curl/8.5.0"),
        ("", ""),
    ],
)  # fmt: skip
def test_browser_and_system_are_named(agent: str, name: str) -> None:
    assert browser_name(agent) == name
