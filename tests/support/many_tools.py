"""Two hundred tools as from servers and plugins, and queries that should find some of them."""

from hermes.schema.tools import Effect, ToolSpec

_SERVERS = {
    "github": ("issue", "pull_request", "branch", "release", "workflow_run", "gist", "label"),
    "calendar": ("event", "reminder", "invitation"),
    "jira": ("ticket", "sprint", "board", "epic"),
    "mail": ("message", "folder", "draft", "attachment"),
    "warehouse": ("order", "parcel", "pallet", "supplier", "invoice"),
    "house": ("lamp", "thermostat", "door_lock", "camera", "blind"),
    "music": ("playlist", "album", "song"),
    "photos": ("picture",),
    "bank": ("account", "transfer", "statement"),
    "crm": ("customer", "deal", "contact", "note"),
}
_VERBS = {
    "create": "Make a new {} and return its id",
    "get": "Show one {} with all its fields",
    "list": "All of the {}s that match a filter, page by page",
    "update": "Change fields of a {} that exists",
    "delete": "Take a {} away for good",
}
TOOL_COUNT = 200

SEARCHES = [
    ("open a new issue on github", "github_create_issue"),
    ("delete calendar event", "calendar_delete_event"),
    ("list the pull requests", "github_list_pull_request"),
    ("change the thermostat", "house_update_thermostat"),
    ("show a bank statement", "bank_get_statement"),
    ("new playlist", "music_create_playlist"),
    ("deleting drafts from mail", "mail_delete_draft"),
    ("which suppliers are there? list them", "warehouse_list_supplier"),
    ("update jira ticket", "jira_update_ticket"),
    ("weather forecast for tomorrow", "weather_forecast"),
]


def make_tool_specs(count: int = TOOL_COUNT) -> list[ToolSpec]:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "Which one is meant"},
            "title": {"type": "string", "description": "A short name for people"},
            "filter": {"type": "string", "description": "Only those that match"},
        },
    }
    found = [
        ToolSpec(f"{server}_{verb}_{noun}", text.format(noun.replace("_", " ")) + ".", schema,
                 Effect.READ if verb in {"get", "list"} else Effect.OUTSIDE, toolset=server)
        for server, nouns in _SERVERS.items() for noun in nouns for verb, text in _VERBS.items()
    ]  # fmt: skip
    weather = ToolSpec("weather_forecast", "Rain, sun and wind of the next days.", schema,
                       Effect.READ, toolset="weather")  # fmt: skip
    filling = [
        ToolSpec(
            f"sensor_{n}", f"Reads the meter number {n}.", schema, Effect.READ, toolset="meters"
        )
        for n in range(count - len(found) - 1)
    ]
    return [*found, weather, *filling][:count]
