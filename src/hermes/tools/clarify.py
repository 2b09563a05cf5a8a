"""The `clarify` tool: ask the user a question and wait for the answer."""

from typing import Annotated

from msgspec import Meta, Raw, Struct

from hermes.ports.tool import ToolContext, ToolOutput
from hermes.schema.errors import ToolError
from hermes.schema.tools import Effect
from hermes.tools.collaborators import ToolCollaborators
from hermes.tools.tool_io import Arguments, encode_result

MAX_CHOICES = 4
MAX_QUESTION = 2_000
MAX_CHOICE = 200


class ClarifyArgs(Struct, frozen=True, forbid_unknown_fields=True):
    question: Annotated[str, Meta(description="What you need to know")]
    choices: Annotated[list[str], Meta(description="Likely answers, at most 4")] = []


class ClarifyResult(Struct, frozen=True):
    question: str
    choices_offered: list[str]
    user_response: str


class Clarify:
    name = "clarify"

    def __init__(self) -> None:
        self._arguments = Arguments(self.name, ClarifyArgs)
        # It changes nothing, but a write never runs in parallel with another question.
        self.spec = self._arguments.spec(
            __file__, Effect.WRITE, timeout=30.0, toolset="clarify", asks=True, own=True
        )

    async def run(self, args: Raw, ctx: ToolContext) -> ToolOutput:
        arguments = self._arguments.decode(args)
        question = arguments.question.strip()
        choices = [choice.strip() for choice in arguments.choices if choice.strip()]
        if not question or len(question) > MAX_QUESTION:
            raise ToolError(f"clarify: `question` must have 1 to {MAX_QUESTION} characters.")
        if len(choices) > MAX_CHOICES or any(len(choice) > MAX_CHOICE for choice in choices):
            raise ToolError(
                f"clarify: at most {MAX_CHOICES} `choices` of at most {MAX_CHOICE} characters."
            )
        answer = await ctx.ask_person(question, choices)
        if answer is None:
            raise ToolError(
                "clarify: no answer was given.",
                hint="Do what is most likely wanted, and state your assumptions.",
            )
        result = encode_result(ClarifyResult(question, choices, answer))
        return ToolOutput.text(result, shown=f"“{answer}”")


def build_clarify(deps: ToolCollaborators) -> Clarify:
    return Clarify()
