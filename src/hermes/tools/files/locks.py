"""One writer per file, whichever session or tool it writes for."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from weakref import WeakValueDictionary

import anyio


class Locks:
    """Shared by all tools of a profile, also where its platforms have tools of their own."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Path, anyio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def holding(self, paths: Iterable[Path]) -> AsyncGenerator[None]:
        """Real paths, taken in one order, so that two patches never wait for each other."""
        async with AsyncExitStack() as stack:
            for path in sorted(set(paths)):
                await stack.enter_async_context(self._hold(path))
            yield

    @asynccontextmanager
    async def _hold(self, path: Path) -> AsyncGenerator[None]:
        """The lock lives as long as somebody holds it or waits for it."""
        lock = self._locks.setdefault(path, anyio.Lock())
        async with lock:
            yield
