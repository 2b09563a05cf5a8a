import json

from hypothesis import given
from hypothesis import strategies as st

from hermes.models.json_repair import repair_json
from support.cases import cases

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON, st.sampled_from([None, 0, 2]), st.booleans())
def test_valid_json_is_unchanged(value: object, indent: int | None, ascii_only: bool):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert repair_json(text) == text


@given(st.text(alphabet="{}[]\",:'\\ \nabtruefalsn01.-"))
def test_result_is_json_or_none(text: str):
    mended = repair_json(text)
    if mended is not None:
        json.loads(mended)


@given(
    st.dictionaries(st.text(), st.text() | st.integers() | st.booleans(), min_size=1),
    st.data(),
)
def test_truncated_object_is_complete_or_not_repaired(
    value: dict[str, object], data: st.DataObject
):
    """Half a value may mean something else, so only closing brackets are added."""
    text = json.dumps(value)
    mended = repair_json(text[: data.draw(st.integers(1, len(text) - 1))])
    if mended is not None:
        kept = json.loads(mended)
        assert list(kept.items()) == list(value.items())[: len(kept)]


@cases(
    ("text", "value"),
    [
        ('{"a": 1,}', {"a": 1}),
        ('{"a": [1, 2,], }', {"a": [1, 2]}),
        ('{"a": [1, 2', None),
        ('{"a": "open', None),
        ('{"a": {"b": "c"', {"a": {"b": "c"}}),
        ('{"a": [1, 2}', {"a": [1, 2]}),
        ('{"a": 1}}', {"a": 1}),
        ("{'a': 'it\\'s', 'b': \"x\"}", {"a": "it's", "b": "x"}),
        ("{'say': '\"hi\"'}", {"say": '"hi"'}),
        ('{"a": True, "b": False, "c": None}', {"a": True, "b": False, "c": None}),
        ('{"a": undefined}', {"a": None}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ("```\n{'a': 1,}\n```", {"a": 1}),
        ('{"a": "line\nbreak\ttab"}', {"a": "line\nbreak\ttab"}),
        ('{"a": "\x01"}', {"a": "\x01"}),
        ('{"re": "\\d+\\.py"}', {"re": "\\d+\\.py"}),
        ('{"a": "\\u00e9 \\uZZ"}', {"a": "é \\uZZ"}),
        ('{a: 1, b_c: "d"}', {"a": 1, "b_c": "d"}),
        ('{"a": 1 "b": 2}', {"a": 1, "b": 2}),
        ('{"a": }', None),
        ('{"a":', None),
        ('{"a": 1, "ab": 2, "a', None),
        ('{"a": 1, "b"', None),
        ('{"a": 1, ', None),
        ("{", None),
        ("[1, 2", None),
        ('["a", "b"', ["a", "b"]),
        ('{"a": true', {"a": True}),
        ("\u201ca\u201d", None),
        ("{\u201ca\u201d: 1}", {"a": 1}),
        ('{"say": "he said "hi" there"}', None),
        ("just words", None),
        ("", None),
        ('{"a": tru', None),
        ('{"a": 1} and more', None),
        ('{"a": 01x}', None),
        ("[" * 5000, None),
    ],
)
def test_repairs(text: str, value: object):
    mended = repair_json(text)
    assert (None if mended is None else json.loads(mended)) == value
