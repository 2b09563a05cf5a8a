"""Text of tasks given to subagents, and of the reports returned."""

from collections.abc import Sequence

from hermes.kit.text import head_and_tail, one_line
from hermes.ports.delegation import Task, TaskReport, TaskStatus

SUBAGENT = "subagent"
"""The source of a subagent's session."""
MAX_SUMMARY = 24_000
"""Maximum characters of one summary; the full text is in the subagent's session."""

_GOAL_WIDTH = 60
_INSTRUCTIONS = (
    "You work for another agent, not for a person: no one can answer questions. Do the task "
    "below to its end, then report what you found or did, what you changed (exact paths), and "
    "what is left open. Only your last message is handed back."
)


def task_text(task: Task) -> str:
    parts = [_INSTRUCTIONS, f"# Task\n\n{task.goal.strip()}"]
    if task.context.strip():
        parts.append(f"# Context\n\n{task.context.strip()}")
    return "\n\n".join(parts)


def goal_of_task_text(text: str) -> str:
    """Extract the goal from a task text."""
    return text.partition("# Task\n\n")[2].partition("\n\n# Context\n\n")[0]


def reports_text(name: str, reports: Sequence[TaskReport], limit: int = MAX_SUMMARY) -> str:
    """Combine all reports into the message that enters the conversation."""
    done = sum(report.fate is TaskStatus.COMPLETED for report in reports)
    lost = sum(report.fate is TaskStatus.LOST for report in reports)
    counts = f"{done} of {len(reports)} completed" + (f", {lost} lost" if lost else "")
    goals = [f"“{one_line(report.goal, _GOAL_WIDTH)}”" for report in reports[:1]]
    goals += [f"{len(reports) - 1} more"] * (len(reports) > 1)
    # People see its first sentence, so it names the goal and not the id.
    head = (
        f"[IMPORTANT: Delegated work has ended, {counts}: "
        f"{' and '.join(goals)}. It is {name}. "
        "Tell the user about the results, and continue the work that waited for them.]"
    )
    return "\n\n".join(
        [head, *(_report_section(n, report, limit) for n, report in enumerate(reports, 1))]
    )


def _report_section(number: int, report: TaskReport, limit: int) -> str:
    lines = [f"## {number}. {report.goal.strip()}", f"{report.fate}, {report.seconds:g} s"]
    if report.session:
        lines[-1] += f", session {report.session}"
    if report.error:
        lines.append(f"Error: {report.error}")
    if report.summary:
        lines += ["", head_and_tail(report.summary, limit)]
    return "\n".join(lines)
