"""SQL by name, read from the `.sql` file that lies beside the module which runs it."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

_HERE = Path(__file__).parent
_MARK = "-- name: "
_PRINCIPAL_FILTER = "AND s.principal = :who"


def load_statements(name: str) -> Mapping[str, str]:
    """The statements of `<name>.sql`, each under the name its heading gives it."""
    found: dict[str, str] = {}
    for block in (_HERE / f"{name}.sql").read_text(encoding="utf-8").split(_MARK)[1:]:
        title, _, text = block.partition("\n")
        found[title.strip()] = text.strip().rstrip(";")
    return MappingProxyType(found)


def without_principal_filter(statements: Mapping[str, str]) -> Mapping[str, str]:
    """The same statements for the owner, whom no condition on the principal keeps out."""
    return MappingProxyType(
        {name: sql.replace(_PRINCIPAL_FILTER, "") for name, sql in statements.items()}
    )


def migrations() -> list[tuple[int, Path]]:
    """Every step of the schema as its number and its script, in order."""
    files = sorted((_HERE / "migrations").glob("[0-9][0-9][0-9][0-9]_*.sql"))
    return [(int(file.name[:4]), file) for file in files]
