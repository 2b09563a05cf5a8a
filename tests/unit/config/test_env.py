import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.config.env import Env, process_env, profile_env

layers = st.lists(st.dictionaries(st.sampled_from("ABCDE"), st.text(max_size=3)), max_size=4)


def test_the_process_environment_is_a_copy():
    snapshot = process_env()
    snapshot["HERMES_SURELY_NOT_SET"] = "x"
    assert "HERMES_SURELY_NOT_SET" not in os.environ
    assert snapshot["PATH"] == os.environ["PATH"]


@given(layers)
def test_first_layer_wins(stack: list[dict[str, str]]):
    env = Env(*stack)
    merged: dict[str, str] = {}
    for layer in reversed(stack):
        merged.update(layer)
    assert dict(env) == merged
    assert len(env) == len(merged)
    assert all(name in env for name in merged)


def test_an_empty_value_above_hides_the_one_below():
    assert Env({"A": ""}, {"A": "1"})["A"] == ""


def test_layering_leaves_the_original_alone():
    below = Env({"A": "1"})
    above = below.overlaid({"A": "2", "B": "3"})
    assert (below.get("A"), below.get("B"), above["A"], above["B"]) == ("1", None, "2", "3")


def test_a_layer_cannot_be_changed_from_outside():
    values = {"A": "1"}
    env = Env(values)
    values["A"] = "2"
    assert env["A"] == "1"


def test_repr_hides_values():
    assert "hunter2" not in repr(Env({"PASSWORD": "hunter2"}))


def test_a_missing_name_is_a_key_error():
    with pytest.raises(KeyError):
        Env()["A"]


def test_two_profiles_in_one_process_see_their_own_variables(tmp_path):
    process = Env({"KEY": "shared", "PATH": "/bin"})
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"KEY={name}\n")
    envs = [profile_env(tmp_path / name, process) for name in ("a", "b", "none")]
    assert [env["KEY"] for env in envs] == ["a", "b", "shared"]
    assert all(env["PATH"] == "/bin" for env in envs)
