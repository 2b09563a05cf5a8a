"""Which lines of a settings file an edit changes."""

import re
from pathlib import Path

import pytest
import yaml

from hermes.config.editor import (
    set_setting,
    set_variable,
    unset_setting,
    unset_variable,
)
from hermes.config.home import Home
from hermes.config.values import remove_value

FULL = (Path(__file__).parent / "data" / "full.yaml").read_text()
WEB = next(line for line in FULL.splitlines(keepends=True) if line.startswith("web:"))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, tmp_path)


def sections_around(name: str) -> str:
    """The section of the setting in a long file, with its neighbors; the last ones without it."""
    sections = re.split(r"(?m)^(?=[a-z_]+:)", FULL)
    section = re.split(r"[.[]", name)[0]
    places = [index for index, text in enumerate(sections) if text.startswith(f"{section}:")]
    place = places[0] if places else len(sections) - 1
    return "".join(sections[max(place - 1, 0) : place + 2])


def changed_lines(old: str, new: str) -> tuple[list[str], list[str]]:
    """The lines that only one of the two has, between an equal beginning and an equal end."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    while before and after and before[0] == after[0]:
        before, after = before[1:], after[1:]
    while before and after and before[-1] == after[-1]:
        before, after = before[:-1], after[:-1]
    return before, after


SETS = {
    "agent.max_turns": ("12", ["  max_turns: 90\n"], ["  max_turns: 12\n"]),
    "model.default": (
        "gpt 5",
        ["  default: anthropic/claude-opus-4.6     # the one I like\n"],
        ["  default: gpt 5                         # the one I like\n"],
    ),
    "web.backend": (
        "exa",
        [WEB],
        [WEB.replace("{backend: ''", "{backend: 'exa'")],
    ),
    "custom_providers[0].name": ("lab2", ["  - name: lab\n"], ["  - name: lab2\n"]),
    "context_file_max_chars": (
        "500",
        ["context_file_max_chars:\n"],
        ["context_file_max_chars: 500\n"],
    ),
    "mcp_servers.notes.command": ("npx", [], ["  notes:\n", "    command: npx\n"]),
    "agent.environment_hint": (
        "two\nlines",
        ["  environment_hint: ''\n"],
        ['  environment_hint: "two\\nlines"\n'],
    ),
    "x_search.limit": ("3", [], ["x_search:\n", "  limit: 3\n"]),
    "platform_toolsets.cli[1]": ("web", [], ["    - web\n"]),
    "timezone": ("12", ["timezone: Europe/Berlin\n"], ["timezone: '12'\n"]),
    "toolsets": ("[a, 'b c']", ["toolsets: [hermes-cli]\n"], ["toolsets: [a, b c]\n"]),
    "goals.max_turns": ("7", ["goals: {max_turns: 20}\n"], ["goals: {max_turns: 7}\n"]),
    "voice.silence": (
        "1.5",
        ["voice: {record_key: ctrl+b, auto_tts: false}\n"],
        ["voice: {record_key: ctrl+b, auto_tts: false, silence: 1.5}\n"],
    ),
    "whatsapp.require_mention": (
        "true",
        ["whatsapp: {}\n"],
        ["whatsapp:\n", "  require_mention: true\n"],
    ),
}


@pytest.mark.parametrize("name", SETS)
def test_setting_touches_only_its_own_line(home, name):
    value, gone, come = SETS[name]
    text = sections_around(name)
    home.config.write_text(text)
    set_setting(home, {}, name, value)
    assert changed_lines(text, home.config.read_text()) == (gone, come)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["agent.max_turns", "voice.silence"])
def test_setting_touches_only_its_own_line_in_a_long_file(home, name):
    value, gone, come = SETS[name]
    home.config.write_text(FULL)
    set_setting(home, {}, name, value)
    assert changed_lines(FULL, home.config.read_text()) == (gone, come)


@pytest.mark.parametrize(
    "name", ["approvals.mode", "goals", "display.runtime_footer", "reset_triggers", "kanban"]
)
def test_unsetting_removes_only_its_own_lines(home, name):
    text = sections_around(name)
    home.config.write_text(text)
    unset_setting(home, {}, name)
    gone, come = changed_lines(text, home.config.read_text())
    assert come == []
    assert gone[0].strip().startswith(name.split(".")[-1] + ":")
    expected = remove_value(yaml.safe_load(text), tuple(name.split(".")))
    assert yaml.safe_load(home.config.read_text()) == expected


def test_comments_around_a_removed_key_stay(home):
    home.config.write_text("# about a\nmodel: x  # gone with it\n# about b\nworktree: true\n")
    unset_setting(home, {}, "model")
    assert home.config.read_text() == "# about a\n# about b\nworktree: true\n"


def test_empty_section_is_removed(home):
    home.config.write_text("a: 1\ndisplay:\n  runtime_footer:\n    enabled: true\n# end\n")
    unset_setting(home, {}, "display.runtime_footer.enabled")
    assert home.config.read_text() == "a: 1\n# end\n"


def test_a_new_file_begins_with_the_setting_and_is_private(home):
    set_setting(home, {}, "display.runtime_footer.enabled", "yes")
    assert home.config.read_text() == "display:\n  runtime_footer:\n    enabled: yes\n".replace(
        "yes", "'yes'"
    )
    assert home.config.stat().st_mode & 0o777 == 0o600


def test_an_existing_file_keeps_its_mode(home):
    home.config.write_text("model: x\n")
    home.config.chmod(0o640)
    set_setting(home, {}, "model", "y")
    assert home.config.stat().st_mode & 0o777 == 0o640


def test_windows_line_ends_and_a_byte_order_mark_stay(home):
    home.config.write_bytes(b"\xef\xbb\xbf# c\r\nagent:\r\n  max_turns: 3\r\nmodel: x")
    set_setting(home, {}, "agent.verbose", "true")
    set_setting(home, {}, "timezone", "UTC")
    assert home.config.read_bytes() == (
        b"\xef\xbb\xbf# c\r\nagent:\r\n  max_turns: 3\r\n  verbose: true\r\nmodel: x\r\n"
        b"timezone: UTC\r\n"
    )


def test_a_bare_model_becomes_a_section_and_a_section_keeps_its_rest(home):
    home.config.write_text("model: gpt-5 # mine\n")
    set_setting(home, {}, "model.provider", "openai")
    assert home.config.read_text() == "model: {default: gpt-5, provider: openai} # mine\n"
    set_setting(home, {}, "model", "gpt-6")
    assert home.config.read_text() == "model: {default: gpt-6, provider: openai} # mine\n"


def test_aliases_are_changed_by_rewriting_the_document(home):
    text = "# top\nvoice: &v\n    a: 1   # one\nhuman_delay: *v\nmodel: 'x'\n"
    home.config.write_text(text)
    set_setting(home, {}, "human_delay.a", "2")
    assert home.config.read_text() == text.replace("a: 1", "a: 2")
    unset_setting(home, {}, "human_delay")
    assert "human_delay" not in home.config.read_text()
    assert "# top\n" in home.config.read_text()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "web.backend",
            "# c\nweb: {search_backend: 'b', x: 1}              # d\ntoolsets: [p, q,  r]\n",
        ),
        ("web.x", "# c\nweb: {backend: a, search_backend: 'b'}        # d\ntoolsets: [p, q,  r]\n"),
        (
            "toolsets[1]",
            "# c\nweb: {backend: a, search_backend: 'b', x: 1}  # d\ntoolsets: [p, r]\n",
        ),
        (
            "toolsets[2]",
            "# c\nweb: {backend: a, search_backend: 'b', x: 1}  # d\ntoolsets: [p, q]\n",
        ),
    ],
)
def test_flow_entry_is_removed(home, name, text):
    home.config.write_text(
        "# c\nweb: {backend: a, search_backend: 'b', x: 1}  # d\ntoolsets: [p, q,  r]\n"
    )
    unset_setting(home, {}, name)
    assert home.config.read_text() == text


@pytest.mark.parametrize("place", [0, 1, 2])
def test_comments_between_brackets_of_other_entries_stay(home, place):
    """A list with comments between its brackets becomes a block when it is changed."""
    text = "toolsets: [\n  a, # first\n  b, # second\n  c ]\n"
    home.config.write_text(text)
    unset_setting(home, {}, f"toolsets[{place}]")
    new = home.config.read_text()
    assert yaml.safe_load(new)["toolsets"] == [
        name for index, name in enumerate("abc") if index != place
    ]
    assert new.count("#") >= 1
    set_setting(home, {}, "toolsets[0]", "z")
    assert home.config.read_text().count("#") == new.count("#")


COMMENTED = """\
a: 1

# about b
b:
  c: 1  # one

# about d
d:
- x
- y

# about e
e: 1
# end
"""


@pytest.mark.parametrize(
    ("name", "value", "old", "new"),
    [
        ("b.z", "3", "# one\n", "# one\n  z: 3\n"),
        ("d[2]", "z", "- y\n", "- y\n- z\n"),
        ("d", "[1]", "d:\n- x\n- y\n", "d: [1]\n"),
        ("f.g", "true", "e: 1\n", "e: 1\nf:\n  g: true\n"),
        ("b", None, "b:\n  c: 1  # one\n", ""),
        ("d[1]", None, "- y\n", ""),
        ("d", None, "d:\n- x\n- y\n", ""),
    ],
)
def test_comments_stay_before_the_setting_they_are_about(home, name, value, old, new):
    home.config.write_text(COMMENTED)
    if value is None:
        unset_setting(home, {}, name)
    else:
        set_setting(home, {}, name, value, force=True)
    assert home.config.read_text() == COMMENTED.replace(old, new)


@pytest.mark.parametrize(
    "text",
    [
        "---\n# settings\nagent:\n    max_turns:   3\nskills:\n    - a\n",
        "a: 1\nb: {x:  1,y: 2}\na: 2\nagent: {max_turns: 3}\n",
        "x: &unused [1,2]\nl:\n    -   a\n    -   b\nagent:\n  max_turns: 3 # c\n",
        "note: >\n  folded\n  text\n\nkeep: |\n  # not a comment\n\nagent:\n  max_turns: 3\n",
        "long: " + "word " * 60 + "\nagent:\r\n  max_turns: 3\r\nx: 1\n",
    ],
)
def test_lines_that_ruamel_writes_differently_stay(home, text):
    home.config.write_bytes(text.encode())
    set_setting(home, {}, "agent.max_turns", "4")
    old, new = changed_lines(text, home.config.read_bytes().decode())
    assert len(old) == len(new) == 1
    assert "max_turns" in new[0]
    assert "4" in new[0]


def test_setting_a_key_that_is_defined_twice_leaves_one(home):
    home.config.write_text("timezone: UTC\nmodel: a\ntimezone: Europe/Berlin\n")
    set_setting(home, {}, "model", "b")
    assert home.config.read_text() == "timezone: UTC\nmodel: b\ntimezone: Europe/Berlin\n"
    set_setting(home, {}, "timezone", "Asia/Tokyo")
    assert home.config.read_text() == "timezone: Asia/Tokyo\nmodel: b\n"


def test_variables_go_to_a_private_env_file(home):
    home.dotenv.write_text("# keys\nA=1\nOPENAI_API_KEY='old' # mine\n")
    home.dotenv.chmod(0o644)
    set_variable(home, "OPENAI_API_KEY", "sk-new$")
    assert home.dotenv.read_text() == "# keys\nA=1\nOPENAI_API_KEY='sk-new$' # mine\n"
    assert home.dotenv.stat().st_mode & 0o777 == 0o600
    assert unset_variable(home, "OPENAI_API_KEY")
    assert not unset_variable(home, "OPENAI_API_KEY")
    assert home.dotenv.read_text() == "# keys\nA=1\n"


def test_line_of_anchors_is_fast(home):
    """The slow way of writing looks for the indent; this text is no anchor."""
    home.config.write_text("a: &b {c: 1}\nd: *b\n" + f'e: ":{"&" * 5_000}"\n')
    set_setting(home, {}, "d", "2", force=True)
    assert home.config.read_text().startswith("a: {c: 1}\nd: 2\n")
