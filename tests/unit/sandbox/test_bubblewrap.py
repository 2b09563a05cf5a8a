"""The wall of namespaces keeps the promises of every sandbox."""

from pathlib import Path

import pytest

from hermes.sandbox.bubblewrap import Bubblewrap, find_bubblewrap
from hermes.sandbox.door import Door
from hermes.sandbox.view import OPEN_OF_RUN, View, hidden_from
from hermes.sandbox.walled import WalledSandbox
from hermes.testing.contracts.sandbox import SandboxContract


class TestBubblewrap(SandboxContract):
    @pytest.fixture
    def sandbox(self, door: Door, tmp_path_factory: pytest.TempPathFactory) -> WalledSandbox:
        found = find_bubblewrap("/usr/bin:/bin")
        assert found is not None
        tmp = tmp_path_factory.mktemp("private")
        view = View(tmp=str(tmp), hidden=hidden_from(Path.home(), root=True), shown=OPEN_OF_RUN)
        return WalledSandbox(door, Bubblewrap(found, view))
