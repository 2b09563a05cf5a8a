"""The OpenAPI document lists exactly the query fields and headers that handlers read."""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import hermes.api
from hermes.api.openapi import openapi
from hermes.api.server import ApiServer
from hermes.kit.clock import SystemClock
from hermes.ports.feature_catalog import FEATURES, feature_routes
from support.api_server import api_settings

GENERIC_MODULES = {"context", "middleware"}
"""Modules that read headers of HTTP itself: key, host, origin, encoding."""


def modules() -> Iterator[tuple[str, ModuleType]]:
    for file in sorted(Path(next(iter(hermes.api.__path__))).glob("*.py")):
        if file.stem not in GENERIC_MODULES:
            yield file.stem, import_module(f"hermes.api.{file.stem}")


def parameters_read_in(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield location and name of each request parameter the module reads."""
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if (found := _read(node)) is not None:
                    location, expression = found
                    for name in _names(module, tree, function, expression):
                        yield location, name


def _read(node: ast.AST) -> tuple[str, ast.expr] | None:
    """Match `request.query.get(NAME)`, `request.headers[NAME]` and the like."""
    match node:
        case ast.Call(func=ast.Attribute(value=holder), args=[expression, *_]):
            pass
        case ast.Subscript(value=holder, slice=expression):
            pass
        case _:
            return None
    match holder:
        case ast.Attribute(value=ast.Name(id="request"), attr=("query" | "headers") as location):
            return location.removesuffix("s"), expression
        case _:
            return None


def _names(
    module: ModuleType,
    tree: ast.Module,
    function: ast.FunctionDef | ast.AsyncFunctionDef,
    expression: ast.expr,
) -> list[str]:
    match expression:
        case ast.Constant(value=str(name)):
            return [name]
        case ast.Name(id=argument) if argument in (all_ := [a.arg for a in function.args.args]):
            position = all_.index(argument)
            return [
                str(argument_node.value)
                for call in ast.walk(tree)
                if isinstance(call, ast.Call)
                and isinstance(call.func, ast.Name)
                and call.func.id == function.name
                and isinstance(argument_node := call.args[position], ast.Constant)
            ]
        case ast.Name(id=constant):
            return [str(getattr(module, constant))]
        case _:
            raise AssertionError(
                f"{module.__name__}:{expression.lineno} reads a parameter with an unknown name"
            )


def test_document_lists_exactly_the_parameters_read() -> None:
    read = {one for _, module in modules() for one in parameters_read_in(module)}
    document = openapi(ApiServer(api_settings(), SystemClock()).routes)
    documented = {
        (one["in"], one["name"])
        for path in document["paths"].values()
        for operation in path.values()
        for one in operation.get("parameters", [])
        if one["in"] != "path"
    }
    assert ("query", "include_children") in read
    assert ("header", "X-Hermes-Session-Key") in read
    features = {
        ("query", name)
        for feature in FEATURES
        for route in feature_routes(feature)
        for name in route.query
    }
    assert documented == read | features


def test_parameters_are_described_and_answers_have_a_content_type() -> None:
    document = openapi(ApiServer(api_settings(), SystemClock()).routes)
    for path, operations in document["paths"].items():
        for operation in operations.values():
            for one in operation.get("parameters", []):
                assert one["in"] == "path" or one["description"], (path, one)
            (success,) = [
                response for status, response in operation["responses"].items() if status < "400"
            ]
            assert success["content"], path
    metrics = document["paths"]["/metrics"]["get"]["responses"]["200"]["content"]
    assert list(metrics) == ["text/plain"]
