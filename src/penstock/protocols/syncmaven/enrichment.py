"""Implements the transform role with a Syncmaven enrichment: spec, check, and the rows' answers.

Not here: questions (``probe``), the run over a stream (``enrichment_run``). Source: the protocol
page, Destination flow; reference §1.
"""

import time
from collections.abc import Iterator
from typing import Any

from penstock.errors import ConfigError, SourceError
from penstock.model.catalog import CheckResult, ConnectorSpec
from penstock.model.events import LogEvent, SkippedItems
from penstock.protocols.connection import EventSink
from penstock.protocols.syncmaven.enrichment_rows import outlined
from penstock.protocols.syncmaven.enrichment_run import EnrichmentRun
from penstock.protocols.syncmaven.enrichment_session import EnrichmentSession
from penstock.protocols.syncmaven.host import Host
from penstock.protocols.syncmaven.messages import Roles, Spec, start_enrichment
from penstock.protocols.syncmaven.probe import ENRICHMENT, ask_spec
from penstock.protocols.syncmaven.zod import unreadable
from penstock.protocols.transforming import Given, TransformRequest
from penstock.runtimes.contract import RunTimeouts

PROTOCOL = "syncmaven"
_CHECK_SECONDS = 2.0  # for a refusal of its credentials


class SyncmavenEnrichment:
    """Enriches rows (``TransformConversation`` of ``protocols.connection``)."""

    def spec(self, runtime: Host, timeouts: RunTimeouts, log: EventSink) -> ConnectorSpec:
        """Returns its credentials' schema. Raises ``ConfigError`` (``connector.not_an_enrichment``)
        for a connector without that role."""
        said = _spec(runtime, timeouts, log)
        if said.zod:
            log(LogEvent("WARN", unreadable("the enrichment describes its credentials")))
        elif said.credentials_schema is None:
            log(
                LogEvent(
                    "WARN", "the enrichment has no schema of its credentials: any are accepted"
                )
            )
        return ConnectorSpec(
            protocol=PROTOCOL,
            config_schema=said.credentials_schema or {},
            abilities={"roles": list(said.roles or (Roles.enrichment,))},
        )

    def check(
        self, runtime: Host, config: dict[str, Any], timeouts: RunTimeouts, log: EventSink
    ) -> CheckResult:
        """Starts it with these credentials, which it does not answer, and waits shortly for a
        refusal."""
        said = _spec(runtime, timeouts, log)
        start = start_enrichment(
            by_page=said.by_page, credentials=config, options={}, sync_id="check"
        )

        def heard(event: LogEvent | SkippedItems) -> None:
            log(event)

        session = EnrichmentSession(runtime.runtime(), timeouts, start, heard, lambda: False)
        try:
            session.open()
            until = time.monotonic() + _CHECK_SECONDS
            while time.monotonic() < until:
                session.listen()
                time.sleep(0.05)
        except SourceError as e:
            if e.code not in ("transform.halted", "transform.exited"):
                raise
            return CheckResult(False, e.message)
        finally:
            session.close()
        return CheckResult(True, "it started; only rows show whether it can enrich")

    def outline(self, runtime: Host, request: TransformRequest, columns: Any) -> Any | None:
        """Returns the input's columns and those that the pipeline declares; starts nothing."""
        declared = {} if request.enriching is None else request.enriching.columns
        return outlined(columns, declared) if declared else None

    def apply(
        self, runtime: Host, request: TransformRequest, feed: Iterator[Any]
    ) -> Iterator[Given]:
        """See ``TransformConversation.apply``. A halt, an exit, silence and unrequested answers
        raise ``SourceError`` (``transform.halted``, ``transform.exited``, ``transform.heartbeat``,
        ``transform.unasked_answer``, ...); a row without an answer that fits becomes a ``Reject``
        or passes (``EnrichmentUse.on_error``)."""
        said: list[LogEvent | SkippedItems] = []

        def hear(event: Any) -> None:
            said.append(event)

        try:
            spec = _spec(runtime, request.timeouts, hear)
        finally:
            yield from said
        yield from EnrichmentRun(runtime, request, by_page=spec.by_page).answers(feed)


def _spec(host: Host, timeouts: RunTimeouts, log: EventSink) -> Spec:
    """Returns its spec. Raises ``ConfigError`` where it has only another role."""
    said = ask_spec(host, timeouts, log, ENRICHMENT)
    if said.roles is not None and Roles.enrichment not in said.roles:
        raise ConfigError(
            f"it is not an enrichment: its roles are {', '.join(said.roles) or 'none'}",
            code="connector.not_an_enrichment",
            hint="a destination goes under `destination`; an enrichment has its role in its spec",
        )
    return said
