"""The number of hypothesis examples of a test, which depends on the profile."""

from hypothesis import settings


def at_most(examples: int) -> settings:
    """Try this many examples, or fewer if the profile does.

    A profile that does not limit them keeps hypothesis' default of 100; it may be exceeded.
    """
    limit = settings().max_examples
    default = settings.get_profile("default").max_examples
    return settings(max_examples=min(examples, limit) if limit < default else examples)
