"""Tools of MCP servers, as tools of the agent. Only who has a server loads the protocol's SDK."""
