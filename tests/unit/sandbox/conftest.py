"""The spawner shared by sandbox tests."""

from collections.abc import Iterator

import pytest

from hermes.sandbox.spawner import Spawner


@pytest.fixture(scope="module")
def spawner() -> Iterator[Spawner]:
    with Spawner(grace=0.2) as spawner:
        yield spawner
