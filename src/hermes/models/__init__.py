"""Drivers for language models: wire codecs, providers, and what keeps them going."""
