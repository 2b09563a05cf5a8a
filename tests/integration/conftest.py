"""The program as a person starts it, and a model that speaks by the script of the test's module."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cli_process import FakeModelProcess, Fifo, HermesCli, fake_model_process


@pytest.fixture(scope="module")
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FakeModelProcess]:
    """Speaks by the `SCRIPT` of the module that asks for it."""
    with fake_model_process(tmp_path_factory.mktemp("model"), request.module.SCRIPT) as running:
        yield running


@pytest.fixture
def hermes(tmp_path: Path, model: FakeModelProcess) -> HermesCli:
    return HermesCli(tmp_path, model.url)


@pytest.fixture
def fifo(hermes: HermesCli) -> Iterator[Fifo]:
    opened = Fifo(hermes.work / "ready")
    yield opened
    opened.close()
