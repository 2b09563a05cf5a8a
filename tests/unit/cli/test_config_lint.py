"""Warnings about unknown names and settings without effect."""

import json
from pathlib import Path

import pytest

from hermes.cli.verbs.config.lint import check_settings, group_unused, lint_values
from hermes.config.env import Env
from hermes.config.home import Home
from hermes.config.problems import Severity

OWN = "custom_providers:\n- {name: den, base_url: http://127.0.0.1:9/v1}\n"


def home_with(tmp_path: Path, text: str) -> Home:
    (tmp_path / "config.yaml").write_text(text)
    return Home(tmp_path, tmp_path)


@pytest.mark.parametrize(
    ("text", "key", "suggestion"),
    [
        ("model:\n  provider: opnai\n", "model.provider", "openai"),
        ("display:\n  skin: drak\n", "display.skin", "dark"),
        (
            OWN + "model: {provider: denn}\n",
            "model.provider",
            "den",
        ),
    ],
)
def test_unknown_name_gets_a_suggestion(
    tmp_path: Path, text: str, key: str, suggestion: str
) -> None:
    (problem,) = lint_values(home_with(tmp_path, text), Env({}))
    assert (problem.key, problem.severity) == (key, Severity.WARNING)
    assert problem.line == text.count("\n")
    assert problem.hint == f"Did you mean {suggestion}? hermes config set {key} {suggestion}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "model: some-model\n",
        "model: {provider: auto}\n",
        "model: {provider: OpenAI}\n",
        "model: {provider: custom}\n",
        "display: {skin: light}\n",
        "display: {skin: default}\n",
        OWN + "model: {provider: custom:Den}\n",
    ],
)
def test_known_values_pass(tmp_path: Path, text: str) -> None:
    assert lint_values(home_with(tmp_path, text), Env({})) == []


def test_unreadable_file_is_reported_once(tmp_path: Path) -> None:
    home = home_with(tmp_path, "model: [\n")
    (problem,) = check_settings(home, Env({}))
    assert problem.severity is Severity.ERROR
    assert str(problem).count(str(home.config)) == 1


def test_many_unused_settings_are_grouped(tmp_path: Path) -> None:
    unused = {"auxiliary": {"moa_aggregator": {"model": "a"}, "moa_reference": {"model": "b"}}}
    few = home_with(tmp_path, f"{json.dumps(unused)}\n")
    assert group_unused(check_settings(few, Env({}))) == check_settings(few, Env({}))
    unused["auxiliary"] |= {"monitor": {"model": "c"}}
    unused["agent"] = {"verify_guidance": False}
    unused["display"] = {"skin": "drak"}
    many = home_with(tmp_path, f"{json.dumps(unused)}\n")
    skin, together = group_unused(check_settings(many, Env({})))
    assert skin.key == "display.skin"
    assert together.message == ("4 settings have no effect: 3 of auxiliary, agent.verify_guidance")
    assert "--verbose" in together.hint
    assert len(check_settings(many, Env({}))) == 5
