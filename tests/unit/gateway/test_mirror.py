"""What is brought to a chat from elsewhere is known to its session, and nobody's own words."""

from pathlib import Path

import pytest

from hermes.gateway.mirror import Mirror
from hermes.kit.clock import SystemClock
from hermes.schema.messages import Trust, User, text_of
from hermes.schema.scope import OWNER, Address
from hermes.schema.sessions import Session
from hermes.session.keys import SessionSource, build_session_key
from hermes.session.runner import Runner
from hermes.store.sqlite import SqliteStore, open_store
