"""What every sandbox starts its programs through."""

from collections.abc import Iterator

import pytest

from hermes.sandbox.spawner import Spawner


@pytest.fixture(scope="module")
def door() -> Iterator[Spawner]:
    """One for the programs of many tests, as in the house."""
    with Spawner(grace=0.2) as door:
        yield door
