"""A fake messaging platform on loopback whose state outlives the gateways under test."""
