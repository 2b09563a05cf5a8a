"""Our widgets must not overwrite attributes of Textual."""

import ast
import inspect
import pkgutil
from functools import cache
from importlib import import_module

import pytest
from textual.message_pump import MessagePump

import hermes.tui

MODULES = [
    import_module(found.name)
    for found in pkgutil.walk_packages(hermes.tui.__path__, "hermes.tui.")
    if not found.ispkg
]
CLASSES = [
    kind
    for module in MODULES
    for kind in vars(module).values()
    if inspect.isclass(kind) and kind.__module__ == module.__name__
    if issubclass(kind, MessagePump)
]


@cache
def own_attributes(kind: type) -> set[str]:
    (body,) = ast.parse(inspect.cleandoc("\n" + inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    functions = [one for one in body.body if not isinstance(one, ast.ClassDef)]
    return {
        node.attr
        for function in functions
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }


def attributes_of_library(kind: type) -> set[str]:
    names: set[str] = set()
    for base in kind.__mro__[1:]:
        if base.__module__.startswith("textual"):
            names |= own_attributes(base) | set(vars(base))
    return names


ALLOWED = {"cursor_blink", "highlighted", "placeholder", "theme"}
"""Attributes of Textual that are meant to be set."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_attributes_do_not_collide_with_textual(kind: type) -> None:
    assert own_attributes(kind) & attributes_of_library(kind) <= ALLOWED
