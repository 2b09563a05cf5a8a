"""Model drivers: wire codecs, providers, key management, retries and fallbacks."""
