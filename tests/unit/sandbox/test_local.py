import pytest

from hermes.sandbox.door import Door
from hermes.sandbox.local import LocalSandbox
from hermes.testing.contracts.sandbox import SandboxContract


class TestLocalSandbox(SandboxContract):
    @pytest.fixture
    def sandbox(self, door: Door) -> LocalSandbox:
        return LocalSandbox(door)
