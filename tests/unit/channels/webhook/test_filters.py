"""Filters select payloads by their fields."""

import pytest

from hermes.channels.webhook.filters import FilterInput, matches_filters, read_filters
from hermes.schema.errors import ConfigError
from support.cases import cases

INPUT = FilterInput(
    "push",
    {"x-urgent": "yes"},
    {
        "action": "opened",
        "number": 7,
        "draft": False,
        "nothing": None,
        "labels": ["bug", 5],
        "user": {"name": "ann"},
    },
)


@cases(
    ("test", "wanted"),
    [
        ({"field": "action", "equals": "opened"}, True),
        ({"field": "action", "equals": "closed"}, False),
        ({"field": "gone", "equals": "closed"}, False),
        ({"field": "action", "not_equals": "closed"}, True),
        ({"field": "gone", "not_equals": "closed"}, True),
        ({"field": "action", "not_equals": "opened"}, False),
        ({"field": "action", "in": ["closed", "opened"]}, True),
        ({"field": "action", "in": []}, False),
        ({"field": "gone", "in": [None]}, False),
        ({"field": "number", "equals": 7}, True),
        ({"field": "number", "equals": "7"}, True),
        ({"field": "number", "equals": 7.0}, True),
        ({"field": "draft", "equals": False}, True),
        ({"field": "draft", "equals": "false"}, True),
        ({"field": "draft", "equals": 0}, False),
        ({"field": "nothing", "equals": None}, True),
        ({"field": "nothing", "exists": True}, True),
        ({"field": "nothing", "missing": True}, False),
        ({"field": "gone", "exists": False}, True),
        ({"field": "gone", "missing": True}, True),
        ({"field": "user.name", "missing": False}, True),
        ({"field": "labels", "contains": "bug"}, True),
        ({"field": "labels", "contains": "5"}, True),
        ({"field": "labels", "contains": "bu"}, False),
        ({"field": "action", "contains": "pen"}, True),
        ({"field": "user", "contains": "name"}, True),
        ({"field": "number", "contains": 7}, False),
        ({"field": "gone", "contains": "x"}, False),
        ({"field": "user", "equals": "ann"}, False),
        ({"field": "user", "equals": {"name": "ann"}}, True),
        ({"field": "event", "equals": "push"}, True),
        ({"field": "event_type", "equals": "push"}, True),
        ({"field": "headers.X-Urgent", "equals": "yes"}, True),
        ({"field": "headers.X-Other", "exists": True}, False),
        ({"field": "payload.action", "equals": "opened"}, True),
        ({"field": "labels.0", "equals": "bug"}, True),
        ({"any": [{"field": "gone", "exists": True}, {"field": "number", "equals": 7}]}, True),
        ({"any": [{"field": "gone", "exists": True}]}, False),
        ({"all": [{"field": "gone", "exists": True}, {"field": "number", "equals": 7}]}, False),
        ({"not": {"field": "draft", "equals": True}}, True),
        ({"not": [{"field": "number", "equals": 7}, {"field": "gone", "exists": True}]}, False),
        ({"not": {"any": [{"field": "gone", "exists": True}]}}, True),
    ],
)
def test_single_condition(test: dict, wanted: bool) -> None:
    assert matches_filters(read_filters([test]), INPUT) is wanted


def test_all_conditions_must_hold() -> None:
    good, bad = {"field": "number", "equals": 7}, {"field": "number", "equals": 8}
    assert matches_filters(read_filters([]), INPUT)
    assert matches_filters(read_filters([good, good]), INPUT)
    assert not matches_filters(read_filters([good, bad]), INPUT)


@cases(
    "wrong",
    [
        {"action": "opened"},
        "action=opened",
        ["action"],
        [{"field": "a"}],
        [{"equals": 1}],
        [{"field": 5, "equals": 1}],
        [{"field": "a", "equals": 1, "in": [1]}],
        [{"field": "a", "equals": 1, "ignore_case": True}],
        [{"field": "a", "like": "x"}],
        [{"field": "a", "in": "x"}],
        [{"field": "a", "exists": "x"}],
        [{"field": "a", "regex": ".*"}],
        [{"field": "a", "in_file": "list.json"}],
        [{"any": []}],
        [{"any": {"field": "a", "exists": True}}],
        [{"any": [{"field": "a", "exists": True}], "all": []}],
        [{"not": "x"}],
    ],
)
def test_invalid_filter_is_reported(wrong: object) -> None:
    with pytest.raises(ConfigError, match="filters") as caught:
        read_filters(wrong)
    assert "field" in caught.value.hint
