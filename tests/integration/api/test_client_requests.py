"""The recorded requests of real clients, sent again; `make clients` runs the clients themselves."""

from pathlib import Path

import pytest

from clients.__main__ import MATRIX, file_name
from clients.gateway import SCRIPT
from clients.recorded import RECORDED, check_exchange, load_exchanges
from support.api_server import api_harness

CLIENTS = sorted(path.stem for path in RECORDED.glob("*.json"))


@pytest.mark.parametrize("client", CLIENTS)
async def test_requests_of_the_client_are_answered(tmp_path: Path, client: str) -> None:
    async with api_harness(tmp_path, SCRIPT) as harness:
        exchanges = load_exchanges(client)
        assert exchanges
        for one in exchanges:
            response = await harness.ask(one.method, one.path, one.data, **one.headers)
            assert check_exchange(one, response.status, response.body) == ""


def test_all_clients_are_recorded() -> None:
    assert {file_name(client.name) for client in MATRIX} == set(CLIENTS)
