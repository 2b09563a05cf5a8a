"""`hermes kanban` and `/kanban`."""

from hermes.kanban.arguments import BOARD
from hermes.kanban.board_actions import BOARD_ACTIONS
from hermes.kanban.person_actions import PERSON_ACTIONS
from hermes.kanban.refinement_actions import REFINEMENT_ACTIONS
from hermes.kanban.service import BoardService
from hermes.kanban.serving_actions import SERVING_ACTIONS
from hermes.kanban.task_actions import CHANGE_ACTIONS
from hermes.kanban.view_actions import VIEW_ACTIONS
from hermes.ports.feature import Verb

VERB: Verb[BoardService] = Verb(
    name="kanban",
    summary="Manage boards of tasks that agents and people work on.",
    actions=(
        *VIEW_ACTIONS,
        *CHANGE_ACTIONS,
        *PERSON_ACTIONS,
        *REFINEMENT_ACTIONS,
        *BOARD_ACTIONS,
        *SERVING_ACTIONS,
    ),
    default="list",
    options=(BOARD,),
)
