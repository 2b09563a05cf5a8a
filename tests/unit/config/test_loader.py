from itertools import pairwise
from pathlib import Path

import pytest

from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.loader import check_config, load_config
from hermes.config.schema import Config
from hermes.config.sections.models import Model
from hermes.kit.errors import ConfigError
from support.cases import cases

FULL = Path(__file__).parent / "data" / "full.yaml"
FILE = Path("config.yaml")
HOME = Home(Path(), Path())


def read(text: str, **env: str):
    return load_config(HOME, env, text)


def warnings(text: str, **env: str) -> list[str]:
    return [str(problem) for problem in read(text, **env).warnings]


def failure(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert caught.value.hint
    return str(caught.value)


def test_no_file_means_defaults(tmp_path):
    loaded = load_config(Home(tmp_path, tmp_path), {})
    assert loaded.config == Config()
    assert loaded.warnings == ()
    assert list(tmp_path.iterdir()) == []


@cases("text", ["", "\n", "# nothing yet\n", "---\n", "{}", "\ufeff# bom\n"])
def test_an_empty_file_means_defaults(text: str):
    assert read(text).config == Config()


def test_documented_defaults():
    config = Config()
    assert config.agent.max_turns == 90
    assert config.compression.threshold == 0.5
    assert config.approvals.mode == "smart"
    assert config.auxiliary.vision.timeout == 120
    assert config.auxiliary.memory_query_rewrite.timeout == 8
    assert config.display.platforms["telegram"].streaming is True
    assert config.toolsets == ("hermes-cli",)
    assert config.terminal.docker_image == "nikolaik/python-nodejs:python3.11-nodejs20"
    assert config.tool_loop_guardrails.hard_stop_after.same_tool_failure == 8


def test_large_config_loads_without_warnings():
    loaded = load_config(HOME, {}, FULL.read_text())
    assert [str(problem) for problem in loaded.warnings] == []
    config = loaded.config
    assert config.main_model.default == "anthropic/claude-opus-4.6"
    assert config.approvals.mode == "off"
    assert config.streaming.transport == "off"
    assert config.display.memory_notifications == "on"
    assert config.display.tool_progress == "off"
    assert config.multiplexed
    assert config.discord.free_response_channels == ("123456789012345678", "223456789012345678")
    assert config.discord.allowed_channels == ("123456789012345678",)
    assert config.discord.channel_prompts == {"123456789012345678": "Answer in French."}
    assert config.slack.require_mention is True
    assert config.platforms["telegram"].channel_overrides["-100123"].model == "gpt-5"
    assert config.platforms["telegram"].token == "123:abc"
    assert config.terminal.docker_env == {"LANG": "C.UTF-8", "DEBUG": "1"}
    assert config.quick_commands["disk"].command == 'df -h "${HOME}"'
    assert config.mcp_servers["files"].tools.include == ("read_file",)


def test_a_model_is_a_name_or_a_section():
    assert read("model: gpt-5").config.main_model == Model(default="gpt-5")
    section = read("model: {default: gpt-5, provider: openai}").config.main_model
    assert section == Model(default="gpt-5", provider="openai")


@cases("word", ["true", "yes", "on", '"true"', '"Yes"', "'ON'", "1", '"1"', "'y'"])
def test_words_for_true(word: str):
    assert read(f"display: {{streaming: {word}}}").config.display.streaming is True


@cases("word", ["false", "no", "off", '"no"', "'Off'", "0", '"0"', '""'])
def test_words_for_false(word: str):
    assert read(f"security: {{redact_secrets: {word}}}").config.security.redact_secrets is False


@pytest.mark.parametrize("number", ["12", '"12"', "12.0", "'12.0'"])
def test_numbers_may_be_text(number: str):
    assert read(f"agent: {{max_turns: {number}}}").config.agent.max_turns == 12


def test_long_numbers_keep_their_digits():
    text = "discord: {max_attachment_bytes: '12345678901234567', channel_prompts: {1: x}}"
    assert read(text).config.discord.max_attachment_bytes == 12345678901234567


def test_key_without_value_uses_default():
    config = read("agent:\nterminal:\n  cwd:\n  timeout: ~\ntoolsets:\nmcp_servers:\n  a:\n").config
    assert config.agent == Config().agent
    assert config.terminal == Config().terminal
    assert config.toolsets == ("hermes-cli",)
    assert config.mcp_servers["a"].timeout == 300


def test_a_partly_given_section_keeps_its_other_defaults():
    config = read("auxiliary: {vision: {model: x}}\ndisplay: {platforms: {slack: {}}}").config
    assert config.auxiliary.vision.timeout == 120
    assert config.display.platforms["telegram"].streaming is True
    assert config.display.platforms["slack"].streaming is None


def test_references_are_expanded_from_the_environment():
    config = read(
        "model: {api_key: '${KEY}', base_url: 'http://${HOST:-localhost}:${PORT:-80}/${KEY}'}\n"
        "toolsets: ['${A:-}x', '${B:-b:-c}']",
        KEY="secret",
        PORT="",
    ).config
    assert config.main_model.api_key == "secret"
    assert config.main_model.base_url == "http://localhost:80/secret"
    assert config.toolsets == ("x", "b:-c")


def test_a_reference_may_give_a_number_or_a_switch():
    config = read("agent: {max_turns: '${N}', verbose: '${V}'}", N="7", V="on").config
    assert (config.agent.max_turns, config.agent.verbose) == (7, True)


def test_missing_variable_is_warned_about():
    text = "custom_providers:\n  - name: x\n    api_key: ${NOPE}\n"
    assert read(text).config.custom_providers[0].api_key == "${NOPE}"
    assert warnings(text) == [
        (
            "config.yaml, line 3, column 5: custom_providers[0].api_key: "
            "the variable NOPE is not set, so ${NOPE} is kept as text"
        )
    ]


def test_names_in_commands_are_left_to_the_shell():
    text = "hooks: {stop: [{command: 'echo ${WHO}'}]}\nquick_commands: {a: {command: '${B}'}}"
    assert warnings(text) == []
    assert read(text).config.hooks["stop"][0].command == "echo ${WHO}"


def test_unknown_keys_are_warned_about_and_kept():
    text = (
        "model: x\n"
        "agnet: {max_turns: 3}\n"
        "agent:\n"
        "  max_turn: 4\n"
        "  zzz: 1\n"
        "max_verify_nudges: 5\n"
        "display:\n"
        "  streamin: true\n"
        "  something_of_a_plugin: true\n"
        "hooks:\n"
        "  stop:\n"
        "    - comand: ls\n"
        "mcp_servers:\n"
        "  a: {tools: {includ: [x]}}\n"
    )
    assert warnings(text) == [
        "config.yaml, line 2, column 1: agnet: unknown setting; did you mean agent?",
        (
            "config.yaml, line 4, column 3: agent.max_turn: "
            "unknown setting; did you mean agent.max_turns?"
        ),
        "config.yaml, line 5, column 3: agent.zzz: unknown setting",
        (
            "config.yaml, line 6, column 1: max_verify_nudges: "
            "unknown setting; did you mean agent.max_verify_nudges?"
        ),
        (
            "config.yaml, line 8, column 3: display.streamin: "
            "unknown setting; did you mean display.streaming?"
        ),
        (
            "config.yaml, line 12, column 7: hooks.stop[0].comand: "
            "unknown setting; did you mean hooks.stop[0].command?"
        ),
        (
            "config.yaml, line 14, column 15: mcp_servers.a.tools.includ: "
            "unknown setting; did you mean mcp_servers.a.tools.include?"
        ),
    ]
    assert read(text).raw["agnet"] == {"max_turns": 3}


def test_duplicate_key_is_warned_about():
    text = "agent: {max_turns: 1}\nmodel: x\nagent:\n  max_turns: 2\n  max_turns: 3\n"
    assert warnings(text) == [
        ("config.yaml, line 3, column 1: agent: defined twice; the first value is ignored"),
        (
            "config.yaml, line 5, column 3: agent.max_turns: "
            "defined twice; the first value is ignored"
        ),
    ]
    assert read(text).config.agent.max_turns == 3


def test_merge_key_is_not_a_duplicate():
    text = "x_search: &base {a: 1, b: 2}\nvoice:\n  <<: *base\n  b: 3\n"
    assert warnings(text) == []
    assert read(text).config.voice == {"a": 1, "b": 3}


BAD = {
    "a tab": (
        "agent:\n\tmax_turns: 3\n",
        (
            "config.yaml, line 2, column 1: invalid YAML: "
            "found character that cannot start any token"
        ),
    ),
    "a colon in a value": (
        "model: a: b\n",
        (
            "config.yaml, line 1, column 9: invalid YAML: "
            "mapping values are not allowed in this context"
        ),
    ),
    "an indent that fits nothing": (
        "agent:\n    max_turns: 3\n  verbose: true\n",
        (
            "config.yaml, line 3, column 3: invalid YAML: "
            "did not find expected key (while parsing a block mapping in line 1)"
        ),
    ),
    "an open quote": (
        'model: "x\nagent: {}\n',
        (
            "config.yaml, line 3, column 1: invalid YAML: "
            "found unexpected end of stream (while scanning a quoted scalar in line 1)"
        ),
    ),
    "an open bracket": (
        "toolsets: [a, b\nmodel: x\n",
        (
            "config.yaml, line 2, column 6: invalid YAML: "
            "did not find expected ',' or ']' (while parsing a flow sequence in line 1)"
        ),
    ),
    "a star": (
        "approvals: {deny: [*.key]}\n",
        (
            "config.yaml, line 1, column 21: invalid YAML: "
            "did not find expected alphabetic or numeric character"
        ),
    ),
    "a star before a word": (
        "approvals: {deny: [*key]}\n",
        "config.yaml, line 1, column 20: invalid YAML: found undefined alias",
    ),
    "a tag": (
        "model: !env KEY\n",
        (
            "config.yaml, line 1, column 8: invalid YAML: "
            "could not determine a constructor for the tag '!env'"
        ),
    ),
    "python": (
        "model: !!python/object/apply:os.system [ls]\n",
        (
            "config.yaml, line 1, column 8: invalid YAML: could not determine a constructor "
            "for the tag 'tag:yaml.org,2002:python/object/apply:os.system'"
        ),
    ),
    "a control character": (
        "model: a\x07b\n",
        "config.yaml, line 1, column 9: invalid YAML: the character U+0007 is not allowed",
    ),
    "two documents": (
        "model: a\n---\nmodel: b\n",
        (
            "config.yaml, line 2, column 1: invalid YAML: "
            "but found another document (expected a single document in the stream in line 1)"
        ),
    ),
    "a list": ("- model\n", "config.yaml: expected settings such as `model: NAME`, found a list"),
    "a text": (
        "just words\n",
        "config.yaml: expected settings such as `model: NAME`, found the text 'just words'",
    ),
    "a day that is none": (
        "timezone: 2026-02-31\n",
        "config.yaml: invalid value: day is out of range for month",
    ),
    "a snake": (
        "voice: &a {b: *a}\n",
        "config.yaml, line 1, column 15: endless nesting: *a is inside &a",
    ),
    "a ladder without end": (
        "voice:\n" + "".join(f"{' ' * n}a:\n" for n in range(1, 900)),
        "config.yaml, line 51, column 51: nested more than 50 levels deep",
    ),
    "brackets without end": (
        "voice: " + "[" * 100_000,
        "config.yaml, line 1, column 57: nested more than 50 levels deep",
    ),
    "a bomb of aliases": (
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(
            f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
            for before, name in pairwise("abcdefghijkl")
        ),
        ("config.yaml, line 5, column 44: more than 100,000 values with aliases expanded"),
    ),
    "a long text many times": (
        f"a: &a {'x' * 100_000}\nb: [{'*a, ' * 1_000}]\n",
        ("config.yaml, line 2, column 257: more than 100,000 values with aliases expanded"),
    ),
    "a number of 5,000 digits": (
        f"agent: {{max_turns: {'9' * 5_000}}}\n",
        "config.yaml: invalid value: a number of more than 100 digits",
    ),
    "a long number in another base": (
        f"agent: {{max_turns: 0x{'f' * 5_000}}}\n",
        "config.yaml: invalid value: a number of more than 100 digits",
    ),
    "text for a number": (
        "agent:\n  max_turns: many\n",
        (
            "config.yaml, line 2, column 3: agent.max_turns: "
            "expected a whole number of at least 0, found the text 'many'"
        ),
    ),
    "a fraction": (
        "agent: {max_turns: 1.5}\n",
        (
            "config.yaml, line 1, column 9: agent.max_turns: "
            "expected a whole number of at least 0, found the number 1.5"
        ),
    ),
    "below zero": (
        "agent: {gateway_timeout: -1}\n",
        (
            "config.yaml, line 1, column 9: agent.gateway_timeout: "
            "expected a number of at least 0, found the number -1"
        ),
    ),
    "beyond the range": (
        "compression: {threshold: 50}\n",
        (
            "config.yaml, line 1, column 15: compression.threshold: "
            "expected a number from 0 to 1, found the number 50"
        ),
    ),
    "a word that is no choice": (
        "approvals: {mode: sometimes}\n",
        (
            "config.yaml, line 1, column 13: approvals.mode: "
            "expected one of manual, off, smart, found the text 'sometimes'"
        ),
    ),
    "a switch that is none": (
        "display: {streaming: maybe}\n",
        (
            "config.yaml, line 1, column 11: display.streaming: "
            "expected true or false, found the text 'maybe'"
        ),
    ),
    "a section that is a text": (
        "agent: fast\n",
        "config.yaml, line 1, column 1: agent: expected a mapping, found the text 'fast'",
    ),
    "a mapping for a list": (
        "toolsets: {a: 1}\n",
        "config.yaml, line 1, column 1: toolsets: expected a list of texts, found a mapping",
    ),
    "a list for a text": (
        "timezone: [a]\n",
        "config.yaml, line 1, column 1: timezone: expected text, found a list",
    ),
    "deep inside": (
        (
            "mcp_servers:\n  fs:\n    command: x\n    env: {A: [1]}\n"
            "custom_providers:\n  - rate: 1\n    context_length: much\n"
        ),
        (
            "config.yaml, line 4, column 11: mcp_servers.fs.env.A: expected text, found a list\n"
            "config.yaml, line 7, column 5: custom_providers[0].context_length: "
            "expected a whole number of at least 0, found the text 'much'"
        ),
    ),
    "a secret is not repeated": (
        "agent: {max_turns: sk-abcdefghijklmnopqrstuvwxyz}\n",
        (
            "config.yaml, line 1, column 9: agent.max_turns: "
            "expected a whole number of at least 0, found the text 'sk-abcde…'"
        ),
    ),
    "neither a name nor a section": (
        "model: [a]\n",
        "config.yaml, line 1, column 1: model: expected text or a mapping, found a list",
    ),
}


@cases("name", BAD)
def test_invalid_files_are_refused_with_position(name: str):
    text, message = BAD[name]
    assert sorted(failure(text).split("\n")) == sorted(message.split("\n"))


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    home = Home(tmp_path, tmp_path)
    home.config.mkdir()
    with pytest.raises(ConfigError, match=r"config\.yaml cannot be read: Is a directory"):
        load_config(home, {})
    home.config.rmdir()
    home.config.write_bytes(b"model: \xff")
    with pytest.raises(ConfigError, match="byte 7 is not UTF-8"):
        load_config(home, {})


def test_a_check_lists_errors_and_warnings_in_the_order_of_the_file(tmp_path):
    home = Home(tmp_path, tmp_path)
    home.config.write_text(
        "model: ${NOPE}\nagent: {max_turns: x}\ndisplay: {streaming: 7}\nmodle: x\n"
    )
    assert [(p.severity.value, p.line, p.key) for p in check_config(home, {})] == [
        ("warning", 1, "model"),
        ("error", 2, "agent.max_turns"),
        ("error", 3, "display.streaming"),
        ("warning", 4, "modle"),
    ]
    home.config.write_text("a: [")
    (problem,) = check_config(home, {})
    assert "invalid YAML" in problem.message
    home.config.unlink()
    assert check_config(home, {}) == []


def test_variables_override_missing_settings():
    env = {"HERMES_MAX_ITERATIONS": "5", "TERMINAL_ENV": "docker", "TERMINAL_TIMEOUT": "9"}
    config = read("terminal: {timeout: 7}", **env).config
    assert config.agent.max_turns == 5
    assert (config.terminal.backend, config.terminal.timeout) == ("docker", 7)


def test_a_bad_variable_is_named():
    with pytest.raises(ConfigError) as caught:
        read("model: x", HERMES_MAX_ITERATIONS="lots")
    assert str(caught.value) == (
        "config.yaml: agent.max_turns: expected a whole number of at least 0, "
        "found the text 'lots' (from the variable HERMES_MAX_ITERATIONS)"
    )


def test_profiles_in_one_process_share_nothing(tmp_path):
    homes = [Home(tmp_path, tmp_path / name, name) for name in ("a", "b")]
    for number, home in enumerate(homes):
        home.path.mkdir()
        home.config.write_text(
            f"model: ${{WHO}}\nagent: {{max_turns: {number + 1}}}\nvoice: {{list: [1]}}\n"
        )
    process = Env({"WHO": "nobody"})
    envs = [process.overlaid({"WHO": home.profile}) for home in homes]
    first, second = (load_config(home, env) for home, env in zip(homes, envs, strict=True))
    assert [loaded.config.model for loaded in (first, second)] == ["a", "b"]
    assert [loaded.config.agent.max_turns for loaded in (first, second)] == [1, 2]
    assert first.config.voice is not second.config.voice
    assert first.config.mcp_servers is not second.config.mcp_servers
    again = load_config(homes[0], envs[0])
    assert again == first
    assert load_config(Home(tmp_path, tmp_path / "c", "c"), process).config == Config()


def test_unclosed_references_are_fast():
    text = "${A:-" * 100_000
    assert read(f"timezone: '{text}'\n").config.timezone == text
    assert read(f"timezone: '${{B}}{text}'\n", B="}").config.timezone == "}" + text


@pytest.mark.slow
def test_suggestions_are_limited():
    found = warnings("".join(f"agent{number}: 1\n" for number in range(20_000)))
    assert len(found) == 20_000
    assert found[0].endswith("did you mean agent?")
    assert found[-1].endswith("unknown setting")
