"""A store in memory, for tests that need a store but no file."""

from hermes.store.memory import MemoryDatabase, open_memory_store

__all__ = ["MemoryDatabase", "open_memory_store"]
