"""The document names every query field and header that a handler reads, and no other."""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import hermes.api
from hermes.api.openapi import openapi
from hermes.api.server import ApiServer
from hermes.kit.clock import SystemClock
from support.api_server import api_settings

OF_EVERY_REQUEST = {"context", "middleware"}
"""Modules that look at what HTTP itself is about: the key, the host, the origin, the encoding."""


def modules() -> Iterator[tuple[str, ModuleType]]:
    for file in sorted(Path(next(iter(hermes.api.__path__))).glob("*.py")):
        if file.stem not in OF_EVERY_REQUEST:
            yield file.stem, import_module(f"hermes.api.{file.stem}")


def read_in(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Where and under which name something of a request is read."""
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if (found := _read(node)) is not None:
                    place, named = found
                    for name in _names(module, tree, function, named):
                        yield place, name


def _read(node: ast.AST) -> tuple[str, ast.expr] | None:
    """`request.query.get(NAME)`, `request.headers[NAME]` and the like."""
    match node:
        case ast.Call(func=ast.Attribute(value=holder), args=[named, *_]):
            pass
        case ast.Subscript(value=holder, slice=named):
            pass
        case _:
            return None
    match holder:
        case ast.Attribute(value=ast.Name(id="request"), attr=("query" | "headers") as place):
            return place.removesuffix("s"), named
        case _:
            return None


def _names(
    module: ModuleType,
    tree: ast.Module,
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    named: ast.expr,
) -> list[str]:
    match named:
        case ast.Constant(value=str(name)):
            return [name]
        case ast.Name(id=argument) if argument in (all_ := [a.arg for a in function.args.args]):
            place = all_.index(argument)
            return [
                str(given.value)
                for call in ast.walk(tree)
                if isinstance(call, ast.Call)
                and isinstance(call.func, ast.Name)
                and call.func.id == function.name
                and isinstance(given := call.args[place], ast.Constant)
            ]
        case ast.Name(id=constant):
            return [str(getattr(module, constant))]
        case _:
            raise AssertionError(f"{module.__name__}:{named.lineno} reads under an unknown name")


def test_the_document_names_what_is_read_and_nothing_else() -> None:
    read = {one for _, module in modules() for one in read_in(module)}
    document = openapi(ApiServer(api_settings(), SystemClock()).routes)
    told = {
        (one["in"], one["name"])
        for path in document["paths"].values()
        for operation in path.values()
        for one in operation.get("parameters", [])
        if one["in"] != "path"
    }
    assert ("query", "include_children") in read
    assert ("header", "X-Hermes-Session-Key") in read
    assert told == read


def test_every_parameter_is_described_and_every_answer_has_its_kind() -> None:
    document = openapi(ApiServer(api_settings(), SystemClock()).routes)
    for path, operations in document["paths"].items():
        for operation in operations.values():
            for one in operation.get("parameters", []):
                assert one["in"] == "path" or one["description"], (path, one)
            (good,) = [told for status, told in operation["responses"].items() if status < "400"]
            assert good["content"], path
    metrics = document["paths"]["/metrics"]["get"]["responses"]["200"]["content"]
    assert list(metrics) == ["text/plain"]
