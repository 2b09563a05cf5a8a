"""A list of tools that is here as a whole, as the listing takes it from a server."""

from collections.abc import Sequence

import mcp_types as types

from hermes.mcp.acting import Acting
from hermes.mcp.listing import Listing, Specs
from hermes.mcp.server import Server


def specs_of(server: Server, tools: Sequence[types.Tool], acting: Acting | None = None) -> Specs:
    listing = Listing(server, acting)
    listing.take(tools)
    return listing.done()
