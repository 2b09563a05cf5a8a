from collections.abc import Iterator

import pytest

from hermes.sandbox.door import Door
from hermes.sandbox.local import LocalSandbox
from hermes.testing.contracts.sandbox import SandboxContract


class TestLocalSandbox(SandboxContract):
    @pytest.fixture
    def sandbox(self) -> Iterator[LocalSandbox]:
        with Door(grace=0.2) as door:
            yield LocalSandbox(door)
