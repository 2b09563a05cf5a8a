import pytest

from hermes.sandbox.local import LocalSandbox
from hermes.sandbox.spawner import Spawner
from hermes.testing.contracts.sandbox import SandboxContract

pytestmark = pytest.mark.slow


class TestLocalSandbox(SandboxContract):
    @pytest.fixture
    def sandbox(self, spawner: Spawner) -> LocalSandbox:
        return LocalSandbox(spawner)
