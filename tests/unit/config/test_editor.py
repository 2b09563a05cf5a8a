from pathlib import Path

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from hermes.config.editor import (
    parse_value,
    replace_config,
    replace_whole_config,
    set_setting,
    set_variable,
    unset_setting,
    unset_variable,
)
from hermes.config.home import Home
from hermes.config.values import format_path, remove_value, set_value
from hermes.config.yaml_edit import render_inline
from hermes.kit.errors import ConfigError, UsageError
from support.examples import at_most

FULL = (Path(__file__).parent / "data" / "full.yaml").read_text()
WEB = next(line for line in FULL.splitlines(keepends=True) if line.startswith("web:"))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, tmp_path)


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
    home.config.write_text(FULL)
    set_setting(home, {}, name, value)
    assert changed_lines(FULL, home.config.read_text()) == (gone, come)


@pytest.mark.parametrize(
    "name", ["approvals.mode", "goals", "display.runtime_footer", "reset_triggers", "kanban"]
)
def test_unsetting_removes_only_its_own_lines(home, name):
    home.config.write_text(FULL)
    unset_setting(home, {}, name)
    gone, come = changed_lines(FULL, home.config.read_text())
    assert come == []
    assert gone[0].strip().startswith(name.split(".")[-1] + ":")
    expected = remove_value(yaml.safe_load(FULL), tuple(name.split(".")))
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


def test_an_invalid_value_changes_nothing(home):
    home.config.write_text(FULL)
    with pytest.raises(ConfigError) as caught:
        set_setting(home, {}, "agent.max_turns", "many")
    assert "agent.max_turns: expected a whole number" in str(caught.value)
    assert caught.value.hint == f"Nothing was changed in {home.config}."
    assert home.config.read_text() == FULL


def test_one_of_two_errors_can_be_fixed(home):
    home.config.write_text("agent: {max_turns: many}\ngoals: {max_turns: few}\n")
    set_setting(home, {}, "agent.max_turns", "3")
    assert home.config.read_text() == "agent: {max_turns: 3}\ngoals: {max_turns: few}\n"
    with pytest.raises(ConfigError):
        set_setting(home, {}, "agent.max_turns", "none")


def test_invalid_yaml_file_is_not_changed(home):
    home.config.write_text("a: [\n")
    with pytest.raises(ConfigError, match="invalid YAML"):
        set_setting(home, {}, "model", "x")
    assert home.config.read_text() == "a: [\n"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("agent.max_turn", "3", "agent.max_turn: .* did you mean agent.max_turns?"),
        ("agnet.max_turns", "3", "agnet: .* did you mean agent?"),
        ("agent", "{max_turn: 3}", "agent.max_turn: .* did you mean agent.max_turns?"),
        ("no_such_thing", "3", "no_such_thing: unknown setting"),
    ],
)
def test_an_unknown_setting_is_refused(home, name: str, value: str, message: str):
    home.config.write_text("zzz: 1\n")
    with pytest.raises(UsageError, match=message) as caught:
        set_setting(home, {}, name, value)
    assert "--force" in caught.value.hint
    assert home.config.read_text() == "zzz: 1\n"


def test_unknown_setting_in_file_does_not_block_edits(home):
    home.config.write_text("agent:\n  zzz: 1\n")
    set_setting(home, {}, "agent.max_turns", "3")
    assert home.config.read_text() == "agent:\n  zzz: 1\n  max_turns: 3\n"


def test_an_unknown_setting_is_set_by_force_with_a_warning(home):
    edited = set_setting(home, {}, "agent.max_turn", "3", force=True)
    assert [w.message for w in edited.warnings] == [
        "unknown setting; did you mean agent.max_turns?"
    ]
    assert home.config.read_text() == "agent:\n  max_turn: 3\n"


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (
            "timezone: UTC\n",
            "timezone.x",
            "timezone is the text 'UTC', so 'x' cannot be set in it.",
        ),
        ("toolsets: [a]\n", "toolsets[3]", "toolsets has 1 entries; 3 is not a valid index."),
        ("toolsets: [a]\n", "toolsets.x", "toolsets has 1 entries; 'x' is not a valid index."),
    ],
)
def test_invalid_path_is_explained(home, text, name, message):
    home.config.write_text(text)
    with pytest.raises(UsageError) as caught:
        set_setting(home, {}, name, "1")
    assert str(caught.value) == message
    assert home.config.read_text() == text


def test_unset_of_missing_setting_is_refused(home):
    home.config.write_text("model: x\n")
    with pytest.raises(UsageError, match=r"agent\.max_turns is not set"):
        unset_setting(home, {}, "agent.max_turns")


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


def test_edit_error_names_line_and_column(home):
    home.config.write_text("model: x\nagent:\n  max_turns: 3\n a: 1\n")
    with pytest.raises(ConfigError, match=r"config\.yaml, line 4, column 2: invalid YAML"):
        set_setting(home, {}, "model", "y")


def test_setting_a_key_that_is_defined_twice_leaves_one(home):
    home.config.write_text("timezone: UTC\nmodel: a\ntimezone: Europe/Berlin\n")
    set_setting(home, {}, "model", "b")
    assert home.config.read_text() == "timezone: UTC\nmodel: b\ntimezone: Europe/Berlin\n"
    set_setting(home, {}, "timezone", "Asia/Tokyo")
    assert home.config.read_text() == "timezone: Asia/Tokyo\nmodel: b\n"


def test_whole_edit_is_refused_if_the_file_changed(home):
    home.config.write_text("model: a\n")
    with pytest.raises(ConfigError, match="changed by another process"):
        replace_whole_config(home, "model: b\n", "model: c\n")
    replace_whole_config(home, "model: a\n", "model: c\n")
    assert home.config.read_text() == "model: c\n"


def test_the_warnings_of_a_new_text_are_returned(home):
    (warning,) = replace_config(home, {}, "", "modle: x\n")
    assert warning.key == "modle"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("False", False),
        ("null", None),
        ("12", 12),
        ("-3", -3),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("[a, 2]", ["a", 2]),
        ("{a: b}", {"a": "b"}),
        ('"12"', "12"),
        ("'it'", "it"),
        ("007", "007"),
        ("12:30", "12:30"),
        ("2026-01-31", "2026-01-31"),
        ("yes", "yes"),
        ("a: b", "a: b"),
        ("it's", "it's"),
        ('"half', '"half'),
        ("", ""),
        ("  padded ", "  padded "),
    ],
)
def test_values_are_parsed_by_form(text, value):
    read = parse_value(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize("text", ["[a", "{a: ", "[a]]"])
def test_unclosed_list_is_refused(text):
    with pytest.raises(UsageError, match="not a valid list"):
        parse_value(text)


def test_text_setting_keeps_text():
    assert parse_value("12", ("timezone",)) == "12"
    assert parse_value("off", ("approvals", "mode")) == "off"
    assert parse_value("true", ("agent", "verbose")) is True
    assert parse_value("5", ("providers", "x", "model")) == "5"


def test_variables_go_to_a_private_env_file(home):
    home.dotenv.write_text("# keys\nA=1\nOPENAI_API_KEY='old' # mine\n")
    home.dotenv.chmod(0o644)
    set_variable(home, "OPENAI_API_KEY", "sk-new$")
    assert home.dotenv.read_text() == "# keys\nA=1\nOPENAI_API_KEY='sk-new$' # mine\n"
    assert home.dotenv.stat().st_mode & 0o777 == 0o600
    assert unset_variable(home, "OPENAI_API_KEY")
    assert not unset_variable(home, "OPENAI_API_KEY")
    assert home.dotenv.read_text() == "# keys\nA=1\n"


def test_unencodable_value_is_refused(home):
    with pytest.raises(UsageError, match="UTF-8"):
        set_variable(home, "A", "\ud800")


texts = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), max_size=12)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**6), 10**6),
    st.floats(allow_nan=False, allow_infinity=False, width=16),
    texts,
    st.sampled_from(["yes", "off", "null", "12", "1:30", "- x", "a: b", "#", "x\ny", "é▉", "!t"]),
)
keys = st.from_regex(r"[a-z][a-z_]{0,5}", fullmatch=True)
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(keys, inner, min_size=0, max_size=3)
    ),
    max_leaves=8,
)
documents = st.dictionaries(keys, trees, min_size=1, max_size=4)


@st.composite
def yaml_texts(draw) -> str:
    """A document as people write them: flow or block, with comments and blank lines strewn in."""
    document = draw(documents)
    text = yaml.safe_dump(
        document,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=draw(st.sampled_from([False, None])),
        indent=draw(st.sampled_from([2, 3, 4])),
        width=1 << 30,
    )
    lines: list[str] = []
    for line in text.splitlines(keepends=True):
        if draw(st.integers(0, 4)) == 0 and not line.startswith(" "):
            lines.append(draw(st.sampled_from(["# a comment\n", "\n", "  # indented\n"])))
        lines.append(line)
    strewn = "".join(lines)
    assume(yaml.safe_load(strewn) == document)
    return strewn


def paths_in(value: object, path: tuple[str | int, ...] = ()):
    if path:
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths_in(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from paths_in(inner, (*path, index))


def home_with(tmp_path_factory: pytest.TempPathFactory, text: str) -> Home:
    folder = tmp_path_factory.mktemp("home")
    home = Home(folder, folder)
    home.config.write_bytes(text.encode())
    return home


def inline(value: object) -> str:
    """The value as an argument of `config set`; bare text would be parsed by its form."""
    return render_inline(value) if not isinstance(value, str) else f'"{value.encode().hex()}"'


@pytest.mark.slow
@given(yaml_texts(), st.data(), trees)
@at_most(40)
def test_edit_is_exact_or_refused(tmp_path_factory, text, data, value):
    home = home_with(tmp_path_factory, text)
    path = data.draw(st.sampled_from(list(paths_in(yaml.safe_load(text)))))
    word = inline(value)
    try:
        set_setting(home, {}, format_path(path), word, force=True)
    except ConfigError:
        assert home.config.read_bytes() == text.encode()
        return
    meant = set_value(yaml.safe_load(text), path, yaml.safe_load(word))
    assert yaml.safe_load(home.config.read_text()) == meant


@pytest.mark.slow
@given(yaml_texts(), st.lists(keys, min_size=1, max_size=3), scalars)
@at_most(30)
def test_an_added_section_only_adds(tmp_path_factory, text, names, value):
    assume(names[0] not in yaml.safe_load(text))
    assume(not any(line.startswith("{") for line in text.splitlines()))
    home = home_with(tmp_path_factory, text)
    word = inline(value)
    set_setting(home, {}, format_path(tuple(names)), word, force=True)
    new = home.config.read_text()
    assert yaml.safe_load(new) == set_value(
        yaml.safe_load(text), tuple(names), yaml.safe_load(word)
    )
    added = iter(new.splitlines())
    assert all(line in added for line in text.splitlines())


@pytest.mark.slow
@given(yaml_texts(), st.data())
@at_most(30)
def test_removal_of_a_section_only_deletes(tmp_path_factory, text, data):
    name = data.draw(st.sampled_from(list(yaml.safe_load(text))))
    home = home_with(tmp_path_factory, text)
    unset_setting(home, {}, name)
    new = home.config.read_text()
    assert (yaml.safe_load(new) or {}) == remove_value(yaml.safe_load(text), (name,))
    kept = iter(text.splitlines())
    assert all(line in kept for line in new.splitlines())


@given(trees)
def test_rendered_value_round_trips(value):
    assert yaml.safe_load(render_inline(value)) == value
    assert yaml.safe_load(f"[{render_inline(value)}, 1]") == [value, 1]
    assert "\n" not in render_inline(value)


@pytest.mark.parametrize(
    "value",
    ["[" * 5_000 + "]" * 5_000, "[&a [x, x], *a" + ", *a" * 60_000 + "]", "[" + "9" * 5_000 + "]"],
)
def test_expanding_value_is_refused(home, value: str):
    with pytest.raises(UsageError, match="the value"):
        set_setting(home, {}, "toolsets", value)
    assert not home.config.exists()


def test_overlong_number_is_text(home):
    assert parse_value("9" * 5_000) == "9" * 5_000


def test_line_of_anchors_is_fast(home):
    """The slow way of writing looks for the indent; this text is no anchor."""
    home.config.write_text("a: &b {c: 1}\nd: *b\n" + f'e: ":{"&" * 5_000}"\n')
    set_setting(home, {}, "d", "2", force=True)
    assert home.config.read_text().startswith("a: {c: 1}\nd: 2\n")
