"""The wheel contains the whole program and names what it needs, also for the terminal UI."""

import ast
import sys
import zipfile
from email.parser import BytesParser
from pathlib import Path

import pytest
from flit_core.wheel import make_wheel_in

ROOT = Path(__file__).parents[3]
DISTRIBUTIONS = {
    "markdown_it": "markdown-it-py",
    "ruamel": "ruamel-yaml",
    "tree_sitter": "tree-sitter",
    "tree_sitter_bash": "tree-sitter-bash",
    "yaml": "pyyaml",
}
"""Packages that are not called like their distribution."""
ALWAYS_USED = ("agent", "api", "app", "cli", "config", "ipc", "kit", "session", "tui")
"""What works without an extra."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    made = make_wheel_in(ROOT / "pyproject.toml", tmp_path_factory.mktemp("wheel"))
    return zipfile.ZipFile(made.file)


def test_every_file_of_the_program_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    source = ROOT / "src"
    files = {str(path.relative_to(source)) for path in (source / "hermes").rglob("*.*")}
    wanted = {one for one in files if not one.endswith(".pyc") and (source / one).is_file()}
    assert wanted <= {*wheel.namelist()}
    assert not [name for name in wheel.namelist() if not name.startswith("hermes")]


def test_metadata_names_every_package_that_is_always_used(wheel: zipfile.ZipFile) -> None:
    (metadata,) = [name for name in wheel.namelist() if name.endswith("METADATA")]
    lines = BytesParser().parsebytes(wheel.read(metadata)).get_all("Requires-Dist") or []
    needed = {line.partition(">")[0] for line in lines if "extra ==" not in line}
    assert "textual" in needed
    imported = {name for name in _imported(wheel) if name not in sys.stdlib_module_names}
    packages = {DISTRIBUTIONS.get(name, name) for name in imported - {"hermes", "_typeshed"}}
    assert packages <= needed


def test_program_is_installed_as_hermes(wheel: zipfile.ZipFile) -> None:
    (points,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert wheel.read(points).decode().split("\n")[:2] == [
        "[console_scripts]",
        "hermes=hermes.cli.main:main",
    ]


def _imported(wheel: zipfile.ZipFile) -> set[str]:
    """The first names of all absolute imports."""
    found: set[str] = set()
    for name in wheel.namelist():
        if not name.endswith(".py") or name.split("/")[1] not in ALWAYS_USED:
            continue
        for node in ast.walk(ast.parse(wheel.read(name))):
            if isinstance(node, ast.Import):
                found |= {one.name.partition(".")[0] for one in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found
