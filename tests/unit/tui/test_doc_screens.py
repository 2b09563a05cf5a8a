"""The screenshots in the documentation are current."""

import re
from html import unescape
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
KEPT = ROOT / "docs" / "screens"


def words_in(picture: Path) -> list[str]:
    """All text, without scroll bars and local times."""
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", picture.read_text())
    lines = [unescape(one).replace("\N{NO-BREAK SPACE}", " ").rstrip() for one in texts]
    words = [one for one in lines if one.strip(" ▁▂▃▄▅▆▇█▎")]
    return [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "WHEN", one) for one in words]


@pytest.mark.slow
async def test_screenshots_match_their_script(tmp_path: Path) -> None:
    spec = spec_from_file_location("screens", ROOT / "scripts" / "screens.py")
    assert spec is not None
    assert spec.loader is not None
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    await script.take_all(tmp_path)
    made = {one.name: words_in(one) for one in sorted(tmp_path.glob("*.svg"))}
    kept = {one.name: words_in(one) for one in sorted(KEPT.glob("*.svg"))}
    assert made == kept, "regenerate them: python scripts/screens.py"
