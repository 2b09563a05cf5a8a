"""Edits of arbitrary settings files."""

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from hermes.config.editor import (
    set_setting,
    unset_setting,
)
from hermes.config.home import Home
from hermes.config.values import format_path, remove_value, set_value
from hermes.config.yaml_edit import render_inline
from hermes.kit.errors import ConfigError
from support.examples import at_most

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
