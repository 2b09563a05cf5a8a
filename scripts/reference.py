"""Write docs/reference from the code: settings, variables, commands, routes, tools, channels."""

import argparse
import json
import sys
from argparse import PARSER, SUPPRESS, Action, ArgumentParser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import cast

import msgspec

from hermes.api.server import ApiServer
from hermes.api.settings import ApiSettings
from hermes.channels import MANIFESTS
from hermes.cli.arguments import GROUP_OF_VERB, build_parser
from hermes.cli.main import VERBS
from hermes.commands.registry import standard_commands
from hermes.config.setting_catalog import Setting, settings
from hermes.config.variables import VARIABLES, Category
from hermes.kit.clock import SystemClock
from hermes.ports.channel import ChannelManifest
from hermes.tools.catalog import load_specs

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
NOTE = "<!-- Written by `make docs` from the code; do not edit. -->"
CATEGORIES: Mapping[Category, str] = {
    Category.PROVIDER: "Model providers",
    Category.TOOL: "Tools",
    Category.MESSAGING: "Gateway and channels",
    Category.SETTING: "Program",
}


def settings_page() -> Iterator[str]:
    yield "# Settings"
    yield (
        "Every setting of `config.yaml` that has an effect, with its default. `*` stands for a\n"
        "name of your choice or a list item. `hermes config set KEY VALUE` changes a setting;\n"
        "`hermes config list TEXT` finds one."
    )
    sections: dict[str, list[Setting]] = {}
    for one in settings():
        if not one.key.startswith("_"):
            single = "." not in one.key
            sections.setdefault("Top level" if single else one.section, []).append(one)
    for section, members in sorted(sections.items(), key=lambda item: item[0] != "Top level"):
        yield f"## {section}"
        yield table(
            ("key", "default", "what it does"),
            (
                (f"`{one.key}`", default_text(one.default), description(one.description, one.words))
                for one in members
            ),
        )


def default_text(value: object) -> str:
    if value in (None, "", (), [], {}):
        return ""
    return f"`{json.dumps(msgspec.to_builtins(value), ensure_ascii=False)}`"


def description(text: str, words: Sequence[str]) -> str:
    named = any(f"`{word}`" in text for word in words)
    listed = ", ".join(f"`{word}`" for word in words)
    return text if named or not words else f"{text} One of {listed}."


def variables_page() -> Iterator[str]:
    yield "# Environment variables"
    yield (
        "Variables are read from the environment and from `~/.hermes/.env`, where\n"
        "`hermes config set NAME VALUE` writes them. Secret ones are never shown in full."
    )
    for category, title in CATEGORIES.items():
        yield f"## {title}"
        members = [one for one in VARIABLES.values() if one.category is category]
        yield table(
            ("name", "what it is", "secret"),
            ((f"`{one.name}`", one.description, "yes" if one.secret else "") for one in members),
        )


def commands_page() -> Iterator[str]:
    yield "# Commands"
    yield "`hermes COMMAND --help` shows the same in the terminal."
    for verb, summary in VERBS.items():
        yield f"## hermes {verb}"
        yield summary
        if verb in GROUP_OF_VERB:
            yield from parser_parts(build_parser(verb))


def parser_parts(parser: ArgumentParser) -> Iterator[str]:
    actions = [one for one in actions_of(parser) if one.help != SUPPRESS and one.dest != "help"]
    choices = next((one for one in actions if one.nargs == PARSER), None)
    plain = [one for one in actions if one is not choices]
    if plain:
        yield table(("argument", "what it does"), map(argument_row, plain))
    if choices is None:
        return
    rows = cast("Sequence[Action]", getattr(choices, "_choices_actions", ()))
    helps = {one.dest: one.help for one in rows}
    seen: set[int] = set()
    for name, action in cast("Mapping[str, ArgumentParser]", choices.choices).items():
        if id(action) in seen or name not in helps:
            continue
        seen.add(id(action))
        yield f"### {action.prog}"
        yield sentence(helps[name] or "")
        yield from (part for part in parser_parts(action) if not part.startswith("###"))


def actions_of(parser: ArgumentParser) -> Sequence[Action]:
    return parser._actions  # noqa: SLF001 - argparse has no public way


def argument_row(action: Action) -> tuple[str, str]:
    names = [f"`{name}`" for name in action.option_strings]
    value = str(action.metavar or action.dest).upper()
    takes = action.nargs != 0
    if not names:
        return f"`{value}`", sentence(action.help or "")
    return ", ".join(names) + (f" `{value}`" if takes else ""), sentence(action.help or "")


def sentence(text: str) -> str:
    text = text.replace("%%", "%")
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "?")) else ".")


def slash_commands_page() -> Iterator[str]:
    yield "# Slash commands"
    yield "Type them in a chat. `/help` lists those that are available where you are."
    commands = sorted(standard_commands().commands, key=attrgetter("name"))
    yield table(
        ("command", "what it does", "where"),
        (
            (
                f"`/{one.name}{' ' + one.usage if one.usage else ''}`",
                one.summary + (f" Also: {aliases(one.aliases)}." if one.aliases else ""),
                one.availability.name.lower() if one.availability.name != "BOTH" else "everywhere",
            )
            for one in commands
        ),
    )


def aliases(names: Iterable[str]) -> str:
    return ", ".join(f"`/{name}`" for name in names)


def routes_page() -> Iterator[str]:
    yield "# Routes of the API"
    yield (
        "The gateway serves them at port 8642 ([guide](../api.md)). `GET /openapi.json` describes\n"
        "bodies and answers. All but the public ones need the key."
    )
    server = ApiServer(ApiSettings(key="unused-" * 3, port=0, max_turns=0), SystemClock())
    yield table(
        ("route", "what it does", "public"),
        (
            (f"`{one.method} {one.path}`", sentence(one.summary), "yes" if one.public else "")
            for one in sorted(server.routes, key=lambda route: (route.path, route.method))
        ),
    )


def tools_page() -> Iterator[str]:
    yield "# Tools"
    yield "What the agent can use. `hermes tools` turns them on and off."
    for name, spec in sorted(load_specs().items()):
        yield f"## {name}"
        yield " ".join(spec.description.split())
        schema = cast("dict[str, dict[str, dict[str, object]]]", spec.schema)
        if properties := schema.get("properties"):
            required = cast("list[str]", schema.get("required", []))
            yield table(
                ("parameter", "type", "what it is"),
                (
                    (
                        f"`{key}`" + (" (required)" if key in required else ""),
                        schema_type(value),
                        str(value.get("description", "")),
                    )
                    for key, value in properties.items()
                ),
            )


def schema_type(value: Mapping[str, object]) -> str:
    if words := cast("list[object] | None", value.get("enum")):
        return ", ".join(f"`{word}`" for word in words)
    kind = value.get("type", "")
    return " or ".join(map(str, kind)) if isinstance(kind, list) else str(kind)


def channels_page() -> Iterator[str]:
    yield "# Channels"
    yield "What each platform can do, and the settings in `platforms.NAME.extra`."
    for manifest in MANIFESTS.values():
        yield f"## {manifest.label or manifest.name}"
        yield f"`platforms.{manifest.name}`; " + ", ".join(abilities(manifest)) + "."
        if manifest.options is not None:
            fields = msgspec.structs.fields(manifest.options)
            yield table(
                ("setting", "variable", "default"),
                (
                    (
                        f"`{one.encode_name}`",
                        code(manifest.variables.get(one.name, "")),
                        default_text(field_default(one)),
                    )
                    for one in fields
                ),
            )


def field_default(field: msgspec.structs.FieldInfo) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return None if field.default is msgspec.NODEFAULT else field.default


def abilities(manifest: ChannelManifest) -> Iterator[str]:
    caps = manifest.caps
    yield f"messages of at most {caps.max_text:,} {caps.unit.value}"
    for name in ("groups", "threads", "edit", "typing", "reactions", "buttons", "voice"):
        if getattr(caps, name, False):
            yield name
    if caps.media_out:
        yield "files"


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(cell(one) for one in line)} |" for line in lines)


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PAGES = {
    "settings": settings_page,
    "variables": variables_page,
    "commands": commands_page,
    "slash-commands": slash_commands_page,
    "routes": routes_page,
    "tools": tools_page,
    "channels": channels_page,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say which pages are out of date")
    check = parser.parse_args().check
    stale: list[str] = []
    FOLDER.mkdir(exist_ok=True)
    for name, page in PAGES.items():
        parts = list(page())
        text = "\n\n".join([parts[0], NOTE, *parts[1:]]) + "\n"
        path = FOLDER / f"{name}.md"
        if not path.exists() or path.read_text() != text:
            stale.append(path.name)
            if not check:
                path.write_text(text)
    if check and stale:
        sys.stderr.write(f"out of date: {', '.join(stale)}; run `make docs`\n")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
