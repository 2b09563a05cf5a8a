import pytest

from support.codex_runtime import codex_program


@pytest.fixture(scope="session")
def program() -> str:
    """The real binary."""
    return codex_program()
