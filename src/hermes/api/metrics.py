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

    def count_turn(self, event: RunEnded | None) -> None:
        """Count the end of a turn; None if it never started."""
        if event is None:
            return
        self.turns[event.outcome] += 1
        self.tokens_in += event.usage.input
        self.tokens_out += event.usage.output

    def count_request(self, status: int) -> None:
        self.requests += 1
        if status >= 400:
            self.errors[status] = self.errors.get(status, 0) + 1


class ApiMetrics:
    """Counters since the process started; `lag` is the delay of the event loop.

    `profiles` has an entry per served profile and one for everything else, so that requests for
    unknown profiles cannot create entries.
    """

    def __init__(self) -> None:
        self.active = 0
        self.lag = 0.0
        self.profiles = {"": ProfileMetrics()}

    @property
    def turns(self) -> dict[Outcome, int]:
        """Turns of all profiles by outcome."""
        return {
            outcome: sum(share.turns[outcome] for share in self.profiles.values())
            for outcome in Outcome
        }

    def add_profile(self, profile: str) -> None:
        self.profiles.setdefault(profile, ProfileMetrics())

    def for_profile(self, profile: str) -> ProfileMetrics:
        return self.profiles.get(profile) or self.profiles[""]

    def text(self, only: str = "") -> str:
        """Render the metrics of all profiles, or of this one."""
        profiles = {only: self.for_profile(only)} if only else self.profiles
        return "\n".join(_metric_lines(profiles, self.lag)) + "\n"


def _turns(metrics: ProfileMetrics) -> MetricValues:
    return [(f'outcome="{name}"', count) for name, count in metrics.turns.items()]


def _errors(metrics: ProfileMetrics) -> MetricValues:
    return [(f'status="{status}"', count) for status, count in sorted(metrics.errors.items())]


def _tokens(metrics: ProfileMetrics) -> MetricValues:
    return [('kind="input"', metrics.tokens_in), ('kind="output"', metrics.tokens_out)]


_METRICS: tuple[tuple[str, str, str, Callable[[ProfileMetrics], MetricValues]], ...] = (
    ("turns_total", "counter", "Turns ended.", _turns),
    ("turns_active", "gauge", "Turns running.", lambda metrics: [("", metrics.active)]),
    ("requests_total", "counter", "Requests.", lambda metrics: [("", metrics.requests)]),
    ("errors_total", "counter", "Rejected requests.", _errors),
    ("tokens_total", "counter", "Tokens used by ended turns.", _tokens),
)


def _metric_lines(profiles: dict[str, ProfileMetrics], lag: float) -> Iterator[str]:
    for name, kind, description, values in _METRICS:
        yield f"# HELP hermes_api_{name} {description}"
        yield f"# TYPE hermes_api_{name} {kind}"
        for profile, metrics in profiles.items():
            for label, value in values(metrics):
                labels = ",".join(filter(None, [f'profile="{profile}"', label]))
                yield f"hermes_api_{name}{{{labels}}} {value:g}"
    yield "# HELP hermes_api_loop_lag_seconds Last measured delay of the event loop."
    yield "# TYPE hermes_api_loop_lag_seconds gauge"
    yield f"hermes_api_loop_lag_seconds {lag:g}"
