"""A messaging platform on loopback with its own truth: it outlives the gateways that serve it."""
