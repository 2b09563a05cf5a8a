"""A real Chromium for the tests of a module."""

import os
from collections.abc import Iterator

import pytest

from support.chromium import browser_path, chromium_process


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if browser_path() is None and os.environ.get("HERMES_PACKAGES") != "required":
        pytest.skip("Chromium is not installed (Debian: apt install chromium)")
    with chromium_process(tmp_path_factory.mktemp("chromium")) as address:
        yield address
