"""A bounded map that drops the least recently used entry."""

from collections import OrderedDict
from typing import Generic, TypeVar

from msgspec import Struct, field

K = TypeVar("K")
V = TypeVar("V")


class LruMap(Struct, Generic[K, V]):
    _limit: int
    _kept: OrderedDict[K, V] = field(default_factory=OrderedDict)

    def get(self, key: K) -> V | None:
        value = self._kept.get(key)
        if value is not None:
            self._kept.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        self._kept[key] = value
        self._kept.move_to_end(key)
        while len(self._kept) > self._limit:
            self._kept.popitem(last=False)

    def keep(self, key: K, value: V | None) -> None:
        """Setting None removes the entry."""
        if value is None:
            self.drop(key)
        else:
            self.put(key, value)

    def drop(self, key: K) -> None:
        self._kept.pop(key, None)

    def __len__(self) -> int:
        return len(self._kept)
