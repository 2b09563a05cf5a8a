"""How one stops what goes on, and how one leaves: by a key that is pressed twice."""

from textual.screen import Screen

from hermes.tui.stand import app_of


class Ending:
    def __init__(self, screen: Screen[None]) -> None:
        self._screen = screen
        self._stopping = False
        self.near = False
        """The same key once more leaves."""

    def warn(self) -> None:
        self.near = True
        self._screen.notify("Ctrl+C once more leaves; so do Ctrl+D and /quit.", timeout=3)

    def stopping(self, *, leaving: bool = False) -> None:
        """Tell that what goes on is about to end."""
        self._stopping = True
        self.near = self.near or leaving
        told = "Stopping. Ctrl+C again leaves at once." if leaving else "Stopping."
        self._screen.notify(told, timeout=3)

    def stopped(self) -> None:
        """What was said about stopping is over."""
        if self._stopping:
            self._stopping = False
            ui = app_of(self._screen)
            # After the notice itself, which may still be on its way there.
            ui.call_later(ui.clear_notifications)

    def stay(self) -> None:
        self.near = False
