"""Check known slash commands of earlier versions: each exists or is listed as not supported."""

from hermes.commands.registry import standard_commands
from support.cases import cases

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

UNSUPPORTED = {
    "topic": "topics of a chat platform",
    "journey": "history of learning; see /changes",
    "moa": "several models asked for one answer",
    "footer": "a line about the run under each answer in a chat",
    "fast": "service tiers of providers",
    "indicator": "other activity indicators",
    "voice": "speech",
    "pet": "pets",
    "suggestions": "scheduled jobs",
    "blueprint": "scheduled jobs",
    "reload": "reloading settings at run time; see /restart",
    "browser": "a browser",
    "plugins": "plugins",
    "subscription": "accounts with a model vendor",
    "topup": "accounts with a model vendor",
    "update": "an updater",
}
"""The missing feature by the command's first name."""

COMMANDS = [tuple(one.split("/")) for words in KNOWN.values() for one in words.split()]


@cases("names", COMMANDS)
def test_known_command_exists_or_is_unsupported(names: tuple[str, ...]) -> None:
    here = set(standard_commands().names)
    if names[0] in UNSUPPORTED:
        assert not here.intersection(names), "the command exists: remove it from UNSUPPORTED"
        return
    assert here.issuperset(names)
    found = {standard_commands().find(name).name for name in names}
    assert len(found) == 1, "these aliases belong to different commands"


def test_unsupported_commands_are_known() -> None:
    assert UNSUPPORTED.keys() <= {names[0] for names in COMMANDS}
