"""Tasks in triage are split automatically, but not again and again."""

from hermes.kanban.refinement import TriagePlanner
from hermes.kanban.service import BoardService
from hermes.kanban.tasks import NewTask, create_task
from hermes.schema.board import TaskStatus
from support.board_agents import NoAgents

PLAN = '{"tasks": [{"title": "draw", "assignee": "eve"}, {"title": "write"}]}'


async def add(service: BoardService) -> str:
    new = NewTask(title="site", triage=True)
    return (await service.write(None, lambda rows: create_task(rows, new, service.now()))).id


async def statuses(service: BoardService, *tasks: str) -> list[TaskStatus]:
    found = [await service.read(None, lambda rows, one=one: rows.task(one)) for one in tasks]
    return [one.status for one in found if one is not None]


async def test_new_tasks_are_split_and_a_failure_is_left_to_people(
    service: BoardService, agents: NoAgents
) -> None:
    tasks = [await add(service) for _ in range(3)]
    planner = TriagePlanner(service=service, limit=2)
    agents.answers = [PLAN, "no idea", PLAN]
    await planner.plan("default")
    todo, triage = TaskStatus.TODO, TaskStatus.TRIAGE
    assert await statuses(service, *tasks) == [todo, triage, triage]
    for _ in range(2):
        await planner.plan("default")
    assert await statuses(service, *tasks) == [todo, triage, todo]
    assert len(agents.asked) == 3


async def test_nothing_is_split_if_that_is_switched_off(
    service: BoardService, agents: NoAgents
) -> None:
    task = await add(service)
    await TriagePlanner(service=service, limit=0).plan("default")
    assert await statuses(service, task) == [TaskStatus.TRIAGE]
    assert not agents.asked
