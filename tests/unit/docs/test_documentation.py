"""The documentation is complete and readable: settings, reference, index, links, line length."""

import re
import subprocess
import sys
from pathlib import Path

from hermes.config.setting_catalog import described_keys, settings

ROOT = Path(__file__).parents[3]
LINK_TARGET = re.compile(r"\]\([^)]*\)")


def run_script(name: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / name), *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_every_setting_has_a_description_and_no_description_is_left_over() -> None:
    assert [one.key for one in settings() if not one.description] == []
    assert described_keys() <= {one.key for one in settings()}


def test_allowed_words_come_from_the_type_or_from_the_list_of_choices() -> None:
    words = {one.key: one.words for one in settings()}
    assert set(words["approvals.mode"]) == {"manual", "smart", "off"}
    assert words["checkpoints.enabled"] == ("true", "false", "auto")
    assert "high" in words["auxiliary.compression.reasoning_effort"]
    assert words["terminal.cwd"] == ()


def test_settings_with_keys_and_tokens_are_secret() -> None:
    secret = {one.key for one in settings() if one.is_secret}
    assert {"model.api_key", "platforms.*.token", "platforms.*.accounts.*.api_key"} <= secret
    assert "model.default" not in secret


def test_reference_is_up_to_date() -> None:
    done = run_script("reference.py", "--check")
    assert done.returncode == 0, done.stderr


def test_no_link_in_the_documentation_is_broken(tmp_path: Path) -> None:
    done = run_script("site.py", str(tmp_path / "site"))
    assert done.returncode == 0, done.stderr
    assert "Hermes documentation" in (tmp_path / "site" / "index.html").read_text()
    assert (tmp_path / "site" / "reference" / "settings.html").exists()


def test_every_page_is_in_the_index() -> None:
    docs = ROOT / "docs"
    index = (docs / "README.md").read_text()
    pages = [*docs.glob("*.md"), *docs.glob("channels/*.md"), *docs.glob("reference/*.md")]
    names = {page.relative_to(docs).as_posix() for page in pages} - {"README.md"}
    assert {name for name in names if f"({name})" not in index} == set()


def test_lines_are_shorter_than_120_characters() -> None:
    written = {*ROOT.glob("*.md"), *ROOT.glob("examples/*.md"), *ROOT.glob("docs/**/*.md")}
    generated = set(ROOT.glob("docs/reference/*.md"))
    too_long = [
        f"{page.relative_to(ROOT)}:{number}"
        for page in sorted(written - generated)
        for number, line in enumerate(page.read_text().splitlines(), 1)
        if not line.startswith("|") and len(LINK_TARGET.sub("]", line)) >= 120
    ]
    assert too_long == []
