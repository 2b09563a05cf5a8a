"""Addresses elsewhere that a caller names; what is inside is told apart for all surfaces alike."""

from hermes.kit.outside import Ip, Resolve, as_ip, is_public, is_public_url, parsed

__all__ = ["Ip", "Resolve", "as_ip", "is_public", "is_public_url", "parsed"]
