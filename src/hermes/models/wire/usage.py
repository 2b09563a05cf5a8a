"""Convert the token counts of chat completions, which providers report differently."""

from msgspec import Struct

from hermes.schema.messages import Usage

MAX_TOKENS = 10**9
"""More tokens than any answer uses."""


class PromptDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_creation_tokens: int | None = None


class CompletionDetails(Struct):
    reasoning_tokens: int | None = None


class WireUsage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    cached_tokens: int | None = None
    cache_creation_input_tokens: int | None = None


def usage_of(wire: WireUsage) -> Usage:
    prompt = wire.prompt_tokens_details or PromptDetails()
    reasoning = (wire.completion_tokens_details or CompletionDetails()).reasoning_tokens or 0
    sent, written = wire.prompt_tokens or 0, wire.completion_tokens or 0
    read = prompt.cached_tokens or wire.prompt_cache_hit_tokens or wire.cached_tokens or 0
    # Some providers do not include reasoning in the completion; only the total shows it.
    if reasoning and wire.total_tokens == sent + written + reasoning:
        written += reasoning
    return Usage(
        input=clamp_tokens(sent),
        output=clamp_tokens(written),
        cache_read=clamp_tokens(read),
        cache_write=clamp_tokens(
            prompt.cache_write_tokens
            or prompt.cache_creation_tokens
            or wire.cache_creation_input_tokens
            or 0
        ),
        reasoning=clamp_tokens(reasoning),
    )


def clamp_tokens(count: int) -> int:
    """Bound a reported count, so that an absurd value cannot spoil the totals."""
    return min(max(count, 0), MAX_TOKENS)
