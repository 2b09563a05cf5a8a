"""What the server counts, and how it tells monitoring of it (Prometheus text)."""

from collections.abc import Iterator

from hermes.schema.events import Outcome, RunEnded


class Tally:
    """Since the start of the process; `active` turns go on now, `lag` is the loop's lateness."""

    def __init__(self) -> None:
        self.active = 0
        self.turns = dict.fromkeys(Outcome, 0)
        self.errors: dict[int, int] = {}
        self.requests = 0
        self.tokens_in = 0
        self.tokens_out = 0
        self.lag = 0.0

    def ended(self, event: RunEnded) -> None:
        self.turns[event.outcome] += 1
        self.tokens_in += event.usage.input
        self.tokens_out += event.usage.output

    def answered(self, status: int) -> None:
        self.requests += 1
        if status >= 400:
            self.errors[status] = self.errors.get(status, 0) + 1

    def text(self) -> str:
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        turns = [(f'outcome="{name}"', count) for name, count in self.turns.items()]
        yield from _metric("hermes_api_turns_total", "counter", "Turns that ended.", turns)
        yield from _plain("hermes_api_turns_active", "gauge", "Turns going on.", self.active)
        yield from _plain("hermes_api_requests_total", "counter", "Requests.", self.requests)
        errors = [(f'status="{status}"', count) for status, count in sorted(self.errors.items())]
        yield from _metric("hermes_api_errors_total", "counter", "Refused requests.", errors)
        tokens = [('kind="input"', self.tokens_in), ('kind="output"', self.tokens_out)]
        yield from _metric("hermes_api_tokens_total", "counter", "Tokens of ended turns.", tokens)
        lag = "How late the event loop last was."
        yield from _plain("hermes_api_loop_lag_seconds", "gauge", lag, self.lag)


def _plain(name: str, kind: str, what: str, value: float) -> Iterator[str]:
    yield from _metric(name, kind, what, [("", value)])


def _metric(
    name: str, kind: str, what: str, values: list[tuple[str, int]] | list[tuple[str, float]]
) -> Iterator[str]:
    yield f"# HELP {name} {what}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values:
        yield f"{name}{{{labels}}} {value:g}" if labels else f"{name} {value:g}"
