"""The program as a person starts it, and a model that speaks by the script of the test's module."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from processes import Fifo, Hermes, MockModel, mock_model


@pytest.fixture(scope="module")
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MockModel]:
    """Speaks by the `SCRIPT` of the module that asks for it."""
    with mock_model(tmp_path_factory.mktemp("model"), request.module.SCRIPT) as running:
        yield running


@pytest.fixture
def hermes(tmp_path: Path, model: MockModel) -> Hermes:
    return Hermes(tmp_path, model.url)


@pytest.fixture
def fifo(hermes: Hermes) -> Iterator[Fifo]:
    opened = Fifo(hermes.work / "told")
    yield opened
    opened.close()
