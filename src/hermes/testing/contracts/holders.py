"""Holders of rows, some of which are alive."""

from hermes.kit.ids import process_id
from hermes.ports.store import Store


def holders_of(store: Store) -> dict[str, str]:
    """Sample holders by what is known about them."""
    host, boot, *_ = process_id().split("/")
    return {
        "old, alive": process_id(),
        "old, dead": f"{host}/{boot}/1/0",
        "none": "",
        "elsewhere": "elsewhere/x/1/2",
        "own": store.workers.own,
    }
