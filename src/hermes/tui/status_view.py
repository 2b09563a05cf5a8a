"""Compute the current content of the status bar, the pending input and the placeholder."""

from hermes.schema.terminal import ConversationState
from hermes.tui.client import Greeting
from hermes.tui.conversation import ConversationController
from hermes.tui.options import BUSY_PLACEHOLDERS, enter_hint
from hermes.tui.turn_display import EventRenderer, TurnDisplay
from hermes.tui.widgets.prompt import DEFAULT_PLACEHOLDER, Prompt
from hermes.tui.widgets.status import PendingInput, StatusBar, StatusInfo
from hermes.tui.widgets.transcript import Transcript


class StatusView:
    def __init__(
        self,
        *,
        bar: StatusBar,
        pending: PendingInput,
        prompt: Prompt,
        conversation: ConversationController,
        renderer: EventRenderer,
        turn: TurnDisplay,
        transcript: Transcript,
    ) -> None:
        self._bar = bar
        self._pending = pending
        self._prompt = prompt
        self._conversation = conversation
        self._renderer = renderer
        self._turn = turn
        self._transcript = transcript

    def refresh(self, state: ConversationState, greeting: Greeting, *, starting: bool) -> None:
        queued = self._conversation.queued
        self._pending.show_lines(self._conversation.steering, queued)
        self._prompt.set_placeholder(self._placeholder_text())
        self._bar.show_info(
            StatusInfo(
                starting=starting,
                activity=self._renderer.activity,
                model=state.model or greeting.model,
                used_tokens=self._renderer.used_tokens,
                window=state.window,
                cost=self._turn.cost,
                seconds=self._turn.seconds,
                sandbox=state.sandbox,
                yolo=state.yolo,
                background_jobs=state.background_jobs,
                enter_hint=self._enter_hint(),
                queued=len(queued),
                more_below=not self._transcript.is_at_end,
            )
        )

    def _placeholder_text(self) -> str:
        """Return what Enter does now."""
        if not self._conversation.busy:
            return DEFAULT_PLACEHOLDER
        if (card := self._renderer.question) is not None:
            return card.placeholder_text
        return BUSY_PLACEHOLDERS[self._conversation.default_mode]

    def _enter_hint(self) -> str:
        """Shown in the status bar, because typed text hides the placeholder."""
        if not self._turn.running or self._renderer.question is not None:
            return ""
        return enter_hint(self._conversation.default_mode)
