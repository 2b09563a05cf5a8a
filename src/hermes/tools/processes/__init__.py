"""Commands that go on beside the talk: how they are kept, watched, reported and ended."""
