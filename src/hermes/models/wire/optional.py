"""Parts of a request that a server may refuse, and that can be done without."""

import re


class Optional:
    """Each part by name, with what a server says when it does not take it."""

    def __init__(self, **complaints: str) -> None:
        self._complaints = complaints
        self._refused: set[str] = set()

    def learn(self, refusal: str) -> bool:
        """Whether it was about one of them; from now on that one is left out."""
        for name, complaint in self._complaints.items():
            if name not in self._refused and re.search(complaint, refusal, re.IGNORECASE):
                self._refused.add(name)
                return True
        return False

    def takes(self, name: str) -> bool:
        return name not in self._refused
