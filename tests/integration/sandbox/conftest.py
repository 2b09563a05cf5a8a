"""What every sandbox starts its programs through."""

from collections.abc import Iterator

import pytest

from hermes.sandbox.door import Door


@pytest.fixture
def door() -> Iterator[Door]:
    with Door(grace=0.2) as door:
        yield door
