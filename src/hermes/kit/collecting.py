"""How often Python looks for garbage in a process that serves many."""

import gc

_PACE = (20_000, 20, 20)
"""A turn makes thousands of objects that need no collector; looking for cycles at Python's own pace
took a tenth of the time of many turns at once."""


def settle() -> None:
    """What is there now stays: looking through it again and again would hold up everybody."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_PACE)
