"""The lines above the prompt with what was said meanwhile, and is not heard yet."""

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from hermes.kit.plain import fit, flat

_MOST = 3
"""Lines at once; the last ones count."""


class Waiting(Static):
    DEFAULT_CSS = """
    Waiting { height: auto; max-height: 3; padding: 0 1; color: $warning; display: none; }
    Waiting.shown { display: block; }
    """

    def __init__(self) -> None:
        super().__init__(markup=False)

    def tell(self, steering: Sequence[str], queued: Sequence[str]) -> None:
        """What the turn will hear at its next step, then what waits for its end."""
        marked = [f"↳ {flat(one)}" for one in steering] + [f"… {flat(one)}" for one in queued]
        self.set_class(bool(marked), "shown")
        if marked:
            room = max(self.screen.size.width - 4, 8)
            self.update(Content("\n".join(fit(one, room) for one in marked[-_MOST:])))
