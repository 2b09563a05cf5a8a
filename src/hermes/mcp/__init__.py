"""Tools of MCP servers as agent tools. The SDK is loaded only if a server is configured."""
