"""All errors.

HermesError
├── UsageError            the command line or a request is wrong             (exit 2)
├── ConfigError           a setting or a file of the home is wrong           (exit 78)
│   └── TemporaryError    the machine lacks something now, such as space     (exit 75)
├── ModelError            the model could not answer
│   ├── Unauthorized      the key is missing or rejected
│   ├── OutOfCredit       the account has no money or quota left
│   ├── RateLimited       too many requests; `wait` says how long            (retryable)
│   ├── Overloaded        the provider is busy or broken                     (retryable)
│   ├── Unreachable       no connection, or it broke                         (retryable)
│   │   ├── TimedOut      no answer within the time allowed
│   │   └── NotRunning    nothing listens at an address of this machine
│   ├── ContextTooLong    the request does not fit the window
│   ├── PolicyRefused     the provider declined the content
│   ├── ModelNotFound     this provider has no such model
│   └── BadRequest        the provider did not understand us
├── SpendCapReached       a limit on money was reached
├── ToolError             shown to the model as a failed result
├── SandboxError          a process could not be started as asked
└── StoreError            durable state could not be read or written
    ├── StoreCorrupt      the database is damaged: stop writing
    ├── StoreFull         the disk is full                                   (exit 75)
    ├── StoreLocked       another program has locked the file                (exit 75)
    ├── SessionBusy       another process runs a turn in this session
    ├── LeaseLost         another process took over the session meanwhile
    ├── StateConflict     the target changed in the meantime
    └── NotFound          there is no such session

`str(error)` says what happened; `hint` says what to do next.
"""

from typing import ClassVar

from hermes.kit.errors import ConfigError as ConfigError  # noqa: PLC0414 - part of the tree
from hermes.kit.errors import HermesError
from hermes.kit.errors import UsageError as UsageError  # noqa: PLC0414 - part of the tree


class ModelError(HermesError):
    code = "model"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, hint: str = "", wait: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.wait = wait


class Unauthorized(ModelError):
    code = "auth"


class OutOfCredit(ModelError):
    code = "billing"


class RateLimited(ModelError):
    code = "rate_limit"
    retryable = True


class Overloaded(ModelError):
    code = "overloaded"
    retryable = True


class Unreachable(ModelError):
    code = "network"
    retryable = True


class TimedOut(Unreachable):
    code = "timeout"


class NotRunning(Unreachable):
    retryable = False


class ContextTooLong(ModelError):
    code = "context_too_long"


class PolicyRefused(ModelError):
    code = "policy"


class ModelNotFound(ModelError):
    code = "model_not_found"


class BadRequest(ModelError):
    code = "bad_request"


class SpendCapReached(HermesError):
    code = "spend_cap"


class ToolError(HermesError):
    code = "tool"


class SandboxError(HermesError):
    code = "sandbox"


class StoreError(HermesError):
    code = "store"


class StoreCorrupt(StoreError):
    code = "store_corrupt"


class StoreFull(StoreError):
    exit_code = 75


class StoreLocked(StoreError):
    exit_code = 75


class SessionBusy(StoreError):
    code = "session_busy"
    exit_code = 75


class LeaseLost(StoreError):
    code = "lease_lost"
    exit_code = 75


class StateConflict(StoreError):
    """The target changed in the meantime."""

    code = "overtaken"


class NotFound(StoreError):
    code = "not_found"
