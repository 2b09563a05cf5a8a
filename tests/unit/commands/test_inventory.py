"""Every slash command that people know from before: it is here, or it is said what it waits for."""

import pytest

from hermes.commands.registry import standard_commands

KNOWN = {
    "Session": """
        start new/reset topic clear redraw history save retry prompt/compose undo title handoff
        branch/fork compress/compact rollback snapshot/snap stop approve deny background/bg/btw
        agents/tasks journey/learning queue/q steer goal subgoal moa status sethome/set-home
        resume sessions restart
    """,
    "Configuration": """
        config model codex-runtime personality statusbar/sb timestamps/ts verbose footer yolo
        reasoning fast skin indicator voice busy
    """,
    "Tools and skills": """
        tools toolsets skills memory bundles pet/hatch learn cron suggestions/suggest
        blueprint/bp curator kanban reload reload-mcp reload-skills browser plugins
    """,
    "Information": """
        whoami profile commands help usage subscription topup insights platforms/gateway platform
        copy paste image update version/v debug quit/exit
    """,
}

WAITING = {
    "topic": "topics of a chat app, which come with its channel",
    "journey": "the story of what was learned; /changes lists it meanwhile",
    "goal": "goals that are gone on with by themselves",
    "subgoal": "goals that are gone on with by themselves",
    "moa": "several models asked for one answer",
    "footer": "a line about the run under each answer in a chat",
    "fast": "service tiers of providers",
    "skin": "looks of the terminal besides dark and light, between which Ctrl+T switches",
    "indicator": "other signs of being at work than the one there is",
    "voice": "speech",
    "pet": "pets",
    "cron": "work at set times",
    "suggestions": "work at set times",
    "blueprint": "work at set times",
    "kanban": "boards of tasks",
    "reload": "settings that are read again while the program runs; /restart does for the gateway",
    "browser": "a browser",
    "plugins": "plugins",
    "subscription": "an account with a seller of models",
    "topup": "an account with a seller of models",
    "paste": "pictures from the clipboard; /image takes a file",
    "update": "an updater",
}
"""By its first name, the feature that a command needs and that is not there yet."""

COMMANDS = [tuple(one.split("/")) for words in KNOWN.values() for one in words.split()]


@pytest.mark.parametrize("names", COMMANDS, ids="/".join)
def test_it_is_here_or_it_waits(names: tuple[str, ...]) -> None:
    here = set(standard_commands().names)
    if names[0] in WAITING:
        assert not here.intersection(names), "it waits no more"
        return
    assert here.issuperset(names)
    found = {standard_commands().find(name).name for name in names}
    assert len(found) == 1, "names of one command that do different things"


def test_nothing_waits_that_nobody_knows() -> None:
    assert WAITING.keys() <= {names[0] for names in COMMANDS}
