"""Edits that are refused, and warnings about accepted ones."""

from pathlib import Path

import pytest

from hermes.config.editor import (
    replace_config,
    replace_whole_config,
    set_setting,
    set_variable,
    unset_setting,
)
from hermes.config.home import Home
from hermes.kit.errors import ConfigError, UsageError


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, tmp_path)


def test_an_invalid_value_changes_nothing(home):
    text = "# mine\nagent: {max_turns: 3}\n"
    home.config.write_text(text)
    with pytest.raises(ConfigError) as caught:
        set_setting(home, {}, "agent.max_turns", "many")
    # Without a line: the text with that value was not written.
    assert str(caught.value).startswith(f"{home.config}: agent.max_turns: expected a whole number")
    assert caught.value.hint == f"Nothing was changed in {home.config}."
    assert home.config.read_text() == text


def test_impossible_port_is_refused(home):
    home.config.write_text("# mine\n")
    for port in ("99999", "-1", "web", "true"):
        with pytest.raises(ConfigError, match="expected a whole number from 0 to 65535"):
            set_setting(home, {}, "platforms.api_server.extra.port", port)
        with pytest.raises(ConfigError, match="API_SERVER_PORT: expected a whole number"):
            set_variable(home, "API_SERVER_PORT", port)
    assert home.config.read_text() == "# mine\n"
    assert not home.dotenv.exists()
    set_variable(home, "ANOTHER_PORT", "tcp://127.0.0.1:80")
    set_setting(home, {}, "platforms.api_server.extra.port", "8642")


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


@pytest.mark.parametrize("text", [".\n", "- a\n- b\n"])
def test_file_without_settings_is_not_changed(home, text: str):
    home.config.write_text(text)
    for edit in (lambda: set_setting(home, {}, "model", "x"), lambda: unset_setting(home, {}, "a")):
        with pytest.raises(ConfigError, match="expected settings such as `model: NAME`, found"):
            edit()
    assert home.config.read_text() == text


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


def test_edit_error_names_line_and_column(home):
    home.config.write_text("model: x\nagent:\n  max_turns: 3\n a: 1\n")
    with pytest.raises(ConfigError, match=r"config\.yaml, line 4, column 2: invalid YAML"):
        set_setting(home, {}, "model", "y")


def test_whole_edit_is_refused_if_the_file_changed(home):
    home.config.write_text("model: a\n")
    with pytest.raises(ConfigError, match="changed by another process"):
        replace_whole_config(home, "model: b\n", "model: c\n")
    replace_whole_config(home, "model: a\n", "model: c\n")
    assert home.config.read_text() == "model: c\n"


def test_the_warnings_of_a_new_text_are_returned(home):
    (warning,) = replace_config(home, {}, "", "modle: x\n")
    assert warning.key == "modle"


def test_unencodable_value_is_refused(home):
    with pytest.raises(UsageError, match="UTF-8"):
        set_variable(home, "A", "\ud800")


@pytest.mark.parametrize(
    "value",
    ["[" * 5_000 + "]" * 5_000, "[&a [x, x], *a" + ", *a" * 60_000 + "]", "[" + "9" * 5_000 + "]"],
)
def test_expanding_value_is_refused(home, value: str):
    with pytest.raises(UsageError, match="the value"):
        set_setting(home, {}, "toolsets", value)
    assert not home.config.exists()
