"""Defines the verbs ``runs`` and ``rejects``: past runs, their logs and rejects.
``engine.inspect.runs`` reads them.
"""

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.api.pipelines import is_connector
from penstock.cli import arguments
from penstock.cli.app import Surface, verb
from penstock.cli.consent import settle
from penstock.cli.report_view import report_text
from penstock.config.did_you_mean import closest
from penstock.config.pipeline import Pipeline, StreamOptions
from penstock.config.selectors import parse_stream
from penstock.engine.inspect import runs as history
from penstock.engine.inspect.pipelines import open_known
from penstock.errors import ConfigError
from penstock.store.contract import Store
from penstock.store.open import open_store
from penstock.terminal import format as text

if TYPE_CHECKING:
    from rich.console import RenderableType

_RUN = re.compile(r"[0-9A-HJKMNP-TV-Z]{26}")  # a ULID
_ROWS_AS_TEXT = 100


@verb(
    "penstock runs", "penstock runs shop --limit 5", "penstock runs shop 01JD3E9ZK0V2Q8W4R5T6Y7A8B9"
)
def runs(
    surface: Surface,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PIPELINE RUN",
            help="A pipeline file, SOURCE DESTINATION, or a name; and the id of one run.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Runs.")] = 20,
    lines: Annotated[
        int, typer.Option("--lines", metavar="N", min=0, help="The last N of one run's log.")
    ] = 50,
    reading: arguments.PipelineFileOptions = arguments.READING,
) -> None:
    """Past runs, newest first; with RUN that run's report and the end of its log."""
    given = list(words or ())
    run = given.pop() if given and (len(given) > 2 or _is_run(given)) else None
    what = _pipeline(surface, given, reading)
    with _opened(surface, what, attempts=True) as (store, name):
        if run is not None:
            report = history.one_run(store, surface.home, name, run, lines)
            traces = surface.output.verbosity >= 2
            surface.output.answer([report], lambda: _one(report, traces=traces))
            return
        reports = history.runs(store, surface.home, name, limit)
    surface.output.answer(reports, lambda: _many(reports, name))


@verb(
    "penstock rejects shop",
    "penstock rejects shop --stream users --json",
    "penstock rejects retry shop.yaml --dry-run",
)
def rejects(
    surface: Surface,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[retry] PIPELINE",
            help="A pipeline file, SOURCE DESTINATION, or the name of one that ran.",
        ),
    ],
    run: Annotated[str | None, arguments.option("--run", "R", "Only this run's.")] = None,
    stream: Annotated[str | None, arguments.option("--stream", "S", "Only this stream's.")] = None,
    limit: Annotated[
        int | None,
        arguments.option(
            "--limit", "N", f"At most N. Default: {_ROWS_AS_TEXT} as text, all as JSON.", min=1
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="For retry: decode; write and save nothing.")
    ] = False,
    reading: arguments.PipelineFileOptions = arguments.READING,
) -> int:
    """Rejected rows: the reason and the original bytes, of the runs of this machine. `retry` gives
    them another try, each once, after their cause was mended."""
    selector = None if stream is None else parse_stream(stream)
    if len(words) > 1 and words[0] == "retry":
        if limit is not None:
            raise ConfigError("--limit is not for retry", code="usage", hint="leave it out")
        wanted = arguments.pipeline_with_file(words[1:], reading, surface.output, surface.home)
        return _retry(surface, wanted, run, selector, dry_run=dry_run)
    if len(words) > 1 and ":" not in words[0] and closest(words[0], ["retry"]):
        raise ConfigError(
            f"{words[0]!r} is no pipeline", code="usage", hint="did you mean `retry`?"
        )
    if dry_run:
        raise ConfigError(
            "--dry-run is for `penstock rejects retry`", code="usage", hint="leave it out"
        )
    what = _pipeline(surface, words, reading)
    most = limit or (None if surface.output.as_json else _ROWS_AS_TEXT)
    with _opened(surface, what) as (store, name):
        assert name is not None
        found = history.rejects(store, surface.home, name, run=run, stream=selector)
        shown = list(islice(found, most))
        more = next(found, None) is not None
    surface.output.answer(shown, lambda: _rejects(shown))
    if more:
        surface.output.say(f"there are more than these {len(shown)}: raise --limit")
    return 0


def _retry(
    surface: Surface,
    pipeline: Pipeline,
    run: str | None,
    stream: StreamOptions | None,
    *,
    dry_run: bool,
) -> int:
    """Runs the rejects of a pipeline again; returns the exit code."""
    from penstock.cli.run import shown_run
    from penstock.engine.inspect.plan_check import consents
    from penstock.engine.run.reject_retry import RetryRequest

    settle(surface, consents(pipeline, surface.home), yes=False)
    request = RetryRequest(run=run, stream=stream)
    options = {"dry_run": dry_run, "retry": request, "daemon": True}
    return shown_run(surface, pipeline, options)


def _is_run(words: list[str]) -> bool:
    return _RUN.fullmatch(words[-1]) is not None or (len(words) == 2 and not is_connector(words[0]))


def _pipeline(
    surface: Surface, words: list[str], reading: arguments.PipelineFileOptions
) -> Pipeline | str | None:
    if not words:
        return None
    return arguments.pipeline_or_name(words, reading, surface.output, starts_none=True)


@contextmanager
def _opened(
    surface: Surface, what: Pipeline | str | None, *, attempts: bool = False
) -> Generator[tuple[Store, str | None]]:
    """Yields the store and the pipeline's name; without a name the default store. ``attempts``: see
    ``open_known``."""
    if what is None:
        store = open_store(surface.home.state_url())
        try:
            yield store, None
        finally:
            store.close()
        return
    with open_known(what, surface.home, attempts=attempts) as known:
        yield known.store, known.name


def _many(reports: list[dict[str, Any]], name: str | None) -> "Iterator[RenderableType]":
    if not reports:
        yield f"no runs of {name}" if name else "no runs in this home's state store"
        if name is None:
            yield "  if a pipeline's file names another store: penstock runs FILE"
        return
    rows = [
        (
            r["started_at"],
            r["run"],
            r["pipeline"],
            "running?" if _is_unsure(r) else r["status"],
            *(_total(r, count) for count in ("read", "rejected", "sent_again")),
            None if r["seconds"] is None else text.seconds(r["seconds"]),
            text.short((r.get("error") or {}).get("message") or "", 60),
        )
        for r in reports
    ]
    headings = (
        "started", "run", "pipeline", "status", "read", "rejected", "sent again", "took", "error",
    )  # fmt: skip
    yield text.grid(headings, rows, {4, 5, 6, 7})
    for report in filter(_is_unsure, reports):
        yield f"run {report['run']}: {report['notes'][0]}"


def _total(report: dict[str, Any], count: str) -> int | None:
    """Returns a count of all streams together; None if the run ended without counting, or has not
    ended."""
    return None if report["seconds"] is None else sum(s[count] for s in report["streams"])


def _is_unsure(report: dict[str, Any]) -> bool:
    """Returns whether the run has no end, and its process cannot be checked from here."""
    return report["status"] == "running" and bool(report["notes"])


def _one(report: dict[str, Any], *, traces: bool) -> "Iterator[RenderableType]":
    """Yields the text of one run. ``traces``: show Penstock's own DEBUG lines too, the traces of
    its defects."""
    yield from report_text(report)
    if report.get("error"):
        yield f"  error     {report['error']['message']}"
    lines = [
        line
        for line in report["log_lines"]
        if traces or (line["level"], line["origin"]) != ("DEBUG", "penstock")
    ]
    if lines:
        yield ""
        yield "the end of its log:"
    for line in lines:
        yield f"{line['at']} {line['level']:<5} {line['origin']}: {line['message']}"


def _any(shown: list[dict[str, Any]], name: str, least: Any) -> bool:
    return any(r[name] is not None and r[name] > least for r in shown)


def _rejects(shown: list[dict[str, Any]]) -> "Iterator[RenderableType]":
    """Yields the text of rejects: each reason once, with the records that were rejected for it.
    Those that a later run tried again are counted: what became of them is in that run."""
    from rich.padding import Padding

    left = [r for r in shown if r["retried"] is None]
    if not shown:
        yield "no rejected rows are kept on this machine"
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for reject in left:
        what = (reject["stream"], reject["field"], reject["reason"])
        groups.setdefault(tuple(each or "" for each in what), []).append(reject)
    more = ["attempt"] if _any(left, "attempt", 1) else []
    for (stream, field, reason), found in groups.items():
        yield f"{stream or 'no stream'}{field and f', {field}'}: {reason}"
        names = ("at", "run", *more)
        rows = ([*(r[name] for name in names), text.short(r["bytes"])] for r in found)
        yield Padding.indent(text.grid((*names, "bytes"), rows), 2)
    if again := len(shown) - len(left):
        runs = sorted({r["retried"] for r in shown if r["retried"] is not None})
        last = f"run {runs[-1]}" if len(runs) == 1 else f"{len(runs)} runs, the last {runs[-1]}"
        rejects = f"{again:,} more {'reject was' if again == 1 else 'rejects were'}"
        yield f"{rejects} tried again in {last}; --json shows them"
