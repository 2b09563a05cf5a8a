"""Events on their way from the thread of a turn to the screen; words in a row become one."""

import threading
from collections.abc import Callable

from hermes.schema.events import Event, ReasoningDelta, TextDelta


class Post:
    """`call` brings `wake` to the screen's own thread; it is called once until `take`."""

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._words: list[str] = []
        self._kind: type[TextDelta | ReasoningDelta] = TextDelta
        self._called = False

    def put(self, event: Event) -> None:
        with self._lock:
            if isinstance(event, TextDelta | ReasoningDelta):
                if type(event) is not self._kind:
                    self._join()
                    self._kind = type(event)
                self._words.append(event.text)
            else:
                self._join()
                self._events.append(event)
            called, self._called = self._called, True
        if not called:
            self._call()

    def take(self) -> list[Event]:
        with self._lock:
            self._join()
            taken, self._events = self._events, []
            self._called = False
        return taken

    def _join(self) -> None:
        if self._words:
            self._events.append(self._kind("".join(self._words)))
            self._words = []
