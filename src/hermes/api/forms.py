"""Answers as JSON: `response_format` of a chat completion, `text.format` of a response."""

from msgspec import UNSET, structs

from hermes.api.chat_wire import ResponseFormat
from hermes.api.choosing import Offer
from hermes.api.errors import invalid
from hermes.api.responses_wire import TextFormat
from hermes.api.settings import ModelRoute
from hermes.api.side_calls import has_own_model
from hermes.app.build import App
from hermes.ports.model import Form
from hermes.schema.sessions import Session


def form_of(given: ResponseFormat | None) -> Form | None:
    """Raises `ApiError` when the schema is missing."""
    if given is None or given.type == "text":
        return None
    if given.type == "json_object":
        return Form()
    wanted = given.json_schema
    if wanted is None or wanted.schema is None:
        raise invalid("There is no schema.", param="response_format.json_schema")
    return Form(schema=wanted.schema, name=wanted.name, strict=wanted.strict)


def text_form(given: TextFormat | None) -> Form | None:
    """Raises `ApiError` when the name or the schema is missing."""
    if given is None or given.type == "text":
        return None
    if given.type == "json_object":
        return Form()
    if given.schema is UNSET or given.name is UNSET:
        raise invalid("A schema and its name are missing.", param="text.format")
    strict = None if given.strict is UNSET else given.strict
    return Form(schema=given.schema, name=given.name, strict=strict)


def in_form(offer: Offer, form: Form | None) -> Offer:
    """The offer with the form that is asked for."""
    if form is None:
        return offer
    return structs.replace(offer, calling=structs.replace(offer.calling, form=form))


async def demand_form(app: App, session: Session, route: ModelRoute | None) -> None:
    """Raises `ApiError` when the model cannot be asked for JSON."""
    if route is not None:
        session = structs.replace(session, model=route.model, provider=route.provider)
    who = "What runs the turns here"
    if has_own_model(app):
        model = await app.models.model_for(session)
        if app.models.profile_of(model).forms:
            return
        who = f"{model.provider}/{model.name}"
    told = f"{who} cannot be asked for JSON of a given form. Ask for it in words, or give a tool."
    raise invalid(told, param="response_format", code="unsupported_response_format")
