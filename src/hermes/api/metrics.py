"""Count turns, requests, errors and tokens, and render them as Prometheus text."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from hermes.schema.events import Outcome, RunEnded

MetricValues: TypeAlias = Iterable[tuple[str, float]]
"""Labels and their values."""


class ProfileMetrics:
    """Counters of one profile."""

    def __init__(self) -> None:
        self.active = 0
        self.turns = dict.fromkeys(Outcome, 0)
        self.errors: dict[int, int] = {}
        self.requests = 0
        self.tokens_in = 0
        self.tokens_out = 0

    def count_turn(self, event: RunEnded) -> None:
        self.turns[event.outcome] += 1
        self.tokens_in += event.usage.input
        self.tokens_out += event.usage.output

    def count_request(self, status: int) -> None:
        self.requests += 1
        if status >= 400:
            self.errors[status] = self.errors.get(status, 0) + 1


class ApiMetrics:
    """Counters since the process started; `lag` is the delay of the event loop.

    `shares` has an entry per served profile and one for everything else, so that requests for
    unknown profiles cannot create entries.
    """

    def __init__(self) -> None:
        self.active = 0
        self.lag = 0.0
        self.profiles = {"": ProfileMetrics()}

    @property
    def turns(self) -> dict[Outcome, int]:
        """Turns of all profiles by outcome."""
        return {one: sum(share.turns[one] for share in self.profiles.values()) for one in Outcome}

    def add_profile(self, profile: str) -> None:
        self.profiles.setdefault(profile, ProfileMetrics())

    def for_profile(self, profile: str) -> ProfileMetrics:
        return self.profiles.get(profile) or self.profiles[""]

    def text(self, only: str = "") -> str:
        """Render the metrics of all profiles, or of this one."""
        shares = {only: self.for_profile(only)} if only else self.profiles
        return "\n".join(_metric_lines(shares, self.lag)) + "\n"


def _metric_lines(shares: dict[str, ProfileMetrics], lag: float) -> Iterator[str]:
    def each(values: Callable[[ProfileMetrics], MetricValues]) -> Iterator[tuple[str, float]]:
        for name, share in shares.items():
            for labels, value in values(share):
                yield ",".join(filter(None, [f'profile="{name}"', labels])), value

    def turns(one: ProfileMetrics) -> MetricValues:
        return [(f'outcome="{name}"', count) for name, count in one.turns.items()]

    def errors(one: ProfileMetrics) -> MetricValues:
        return [(f'status="{status}"', count) for status, count in sorted(one.errors.items())]

    def tokens(one: ProfileMetrics) -> MetricValues:
        return [('kind="input"', one.tokens_in), ('kind="output"', one.tokens_out)]

    yield from _metric("hermes_api_turns_total", "counter", "Turns ended.", each(turns))
    active = each(lambda one: [("", one.active)])
    yield from _metric("hermes_api_turns_active", "gauge", "Turns running.", active)
    requests = each(lambda one: [("", one.requests)])
    yield from _metric("hermes_api_requests_total", "counter", "Requests.", requests)
    yield from _metric("hermes_api_errors_total", "counter", "Rejected requests.", each(errors))
    yield from _metric(
        "hermes_api_tokens_total", "counter", ("Tokens used by ended turns."), each(tokens)
    )
    lag_help = "Last measured delay of the event loop."
    yield from _metric("hermes_api_loop_lag_seconds", "gauge", lag_help, [("", lag)])


def _metric(name: str, kind: str, description: str, values: MetricValues) -> Iterator[str]:
    yield f"# HELP {name} {description}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values:
        yield f"{name}{{{labels}}} {value:g}" if labels else f"{name} {value:g}"
