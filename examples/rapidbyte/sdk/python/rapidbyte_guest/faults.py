"""Errors as the host wants them: raise what these give from open, discover, validate or run.

A host's own error arrives as the same exception (``Err``, its record in ``value``); let it pass, so
that its cause is told. Another Python exception ends the connector, and its traceback is what the
user sees. Source: the protocol, section 5.
"""

import json
from typing import Any

from componentize_py_types import Err
from wit_world.imports import types

_TRANSIENT = ("rate_limit", "transient_network", "transient_db")
_SCOPES = {
    "stream": types.ErrorScope.PER_STREAM,
    "batch": types.ErrorScope.PER_BATCH,
    "record": types.ErrorScope.PER_RECORD,
}
BEFORE, UNKNOWN, CONFIRMED = (
    types.CommitState.BEFORE_COMMIT,
    types.CommitState.AFTER_COMMIT_UNKNOWN,
    types.CommitState.AFTER_COMMIT_CONFIRMED,
)
"""What a destination knows of its last commit."""


def fault(
    category: str,
    code: str,
    message: str,
    *,
    scope: str = "stream",
    retryable: bool | None = None,
    retry_after_ms: int | None = None,
    commit: Any = None,
    details: Any = None,
) -> Err:
    """``category``: ``config``, ``auth``, ``transient_network``, ... (what is transient may be
    tried again unless said otherwise). ``commit``: after anything but ``BEFORE`` another try is
    not safe."""
    again = category in _TRANSIENT if retryable is None else retryable
    slow = category == "rate_limit"
    return Err(
        types.ConnectorError(
            category=types.ErrorCategory[category.upper()],
            scope=_SCOPES[scope],
            code=code,
            message=message,
            retryable=again,
            retry_after_ms=retry_after_ms,
            backoff_class=types.BackoffClass.SLOW if slow else types.BackoffClass.NORMAL,
            safe_to_retry=again and commit in (None, BEFORE),
            commit_state=commit,
            details_json=None if details is None else json.dumps(details),
        )
    )
