"""Load named SQL statements from the `.sql` files of the store."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

_HERE = Path(__file__).parent
_MARK = "-- name: "
_PRINCIPAL_FILTER = "AND s.principal = :who"


def load_statements(name: str) -> Mapping[str, str]:
    """The statements of `<name>.sql`, by the names in their headings."""
    found: dict[str, str] = {}
    for block in (_HERE / f"{name}.sql").read_text(encoding="utf-8").split(_MARK)[1:]:
        title, _, text = block.partition("\n")
        found[title.strip()] = text.strip().rstrip(";")
    return MappingProxyType(found)


def without_principal_filter(statements: Mapping[str, str]) -> Mapping[str, str]:
    """The same statements for the owner, without the condition on the principal."""
    return MappingProxyType(
        {name: sql.replace(_PRINCIPAL_FILTER, "") for name, sql in statements.items()}
    )


def migrations() -> list[tuple[int, Path]]:
    """Every schema migration as its number and script, in order."""
    files = sorted((_HERE / "migrations").glob("[0-9][0-9][0-9][0-9]_*.sql"))
    return [(int(file.name[:4]), file) for file in files]
