"""Sessions: keys, leases, and running turns durably."""
