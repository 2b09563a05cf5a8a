"""Sessions: keys, leases, and durable turns."""
