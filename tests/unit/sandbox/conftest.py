"""What every sandbox starts its programs through."""

from collections.abc import Iterator

import pytest

from hermes.sandbox.door import Door


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    """One for the programs of many tests, as in the house."""
    with Door(grace=0.2) as door:
        yield door
