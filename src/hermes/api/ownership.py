"""Whose a session is: only the role that began a session over the API may continue it."""

from hermes.api.errors import ApiError
from hermes.schema.scope import OWNER, Role
from hermes.schema.sessions import Session

SOURCE = "api_server"


def principal_for(role: Role, session: str) -> str:
    """Whom a turn of this role acts for. Below the owner, every session is a principal apart."""
    return OWNER if role is Role.OWNER else f"{SOURCE}:{role.value}:{session}"


def is_own(session: Session, role: Role) -> bool:
    return session.principal == principal_for(role, session.id)


def demand_own(session: Session, role: Role) -> Session:
    """The session, if a turn of this role may continue it. Raises `ApiError`."""
    if is_own(session, role):
        return session
    if role is Role.OWNER:
        told = (
            f"Session {session.id} is not the owner's: what was said there are somebody else's "
            f"words. To go on from it, copy it: POST /api/sessions/{session.id}/fork"
        )
    else:
        told = (
            f"Session {session.id} was not begun by a run with the role {role.value}, which "
            "therefore cannot continue it. Name a session of that role, or a new one."
        )
    raise ApiError(403, "session_not_allowed", told)
