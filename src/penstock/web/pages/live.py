"""Starts runs, shows a running one while the page is open, and stops it.

The page follows by server-sent events; without script the browser reloads it. Closing it changes
nothing. Not here: the process (``launches``), the report of a run that has ended (``history``).
"""

import json
import random
import time
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from penstock.errors import ConfigError, PenstockError
from penstock.web import launches
from penstock.web.connector_specs import settle
from penstock.web.pages.history import report_of, run_values, what_of
from penstock.web.site import Form, Site, at, file_of, go, not_found, one, shown_error

_SECONDS = 1.0
_LINES = 200
_LONGEST = 6 * 3600.0  # per connection: the browser then opens another
_MOST_OPEN = 3
"""The most connections that stay open. A browser has six for all its tabs; further pages poll every
few seconds."""


def start(site: Site, request: Request, form: Form) -> Response:
    file = file_of(request)
    pipeline = site.workspace.pipeline(file)  # its faults are shown here
    from penstock.engine.inspect.plan_check import consents

    settle(consents(pipeline, site.home), yes=one(form, "yes") == "yes")
    launched = launches.launch(site.home, site.workspace.path(file), *run_options(form))
    return go(at("launch", launched.id))


def run_options(form: Form) -> list[str]:
    """Returns the options of ``penstock run`` that a form selects."""
    options: list[str] = []
    if names := form.get("stream"):
        options += ["--streams", json.dumps([{"name": name} for name in names])]
    if one(form, "how") in ("full-refresh", "recreate"):
        options.append(f"--{one(form, 'how')}")
    if one(form, "limit").isdecimal():
        options += ["--limit", one(form, "limit")]
    return options


def started(site: Site, request: Request) -> Response:
    """Shows what a started process prints, until its run is known."""
    launched = launches.found(site.home, str(request.path_params["id"]))
    if launched is None:
        raise not_found()
    answer, starting = launches.outcome(site.home, launched)
    run = _run_of(site, launched, answer)
    if run is not None:
        return go(f"{at('runs', run)}?file={launched.file}")
    error = None
    if answer is not None and answer.get("error"):
        error = shown_error(PenstockError.from_dict(answer["error"]))
    dry = answer if answer is not None and isinstance(answer.get("streams"), list) else None
    values = {
        **({"run": None} if dry is None else run_values(site, request, dry, None)),
        "error": error,
        "starting": starting,
        "printed": launches.printed(site.home, launched),
        "file": launched.file,
        "nav": "runs",
    }
    return site.page(request, "launch.html", values)


def _run_of(site: Site, launched: launches.StartedRun, answer: dict[str, Any] | None) -> str | None:
    """Returns the run of a process: by the lock that it holds, or by its report."""
    if answer is not None and isinstance(answer.get("run"), str) and not answer.get("dry_run"):
        return answer["run"]
    if answer is not None:
        return None
    try:
        pipeline = site.workspace.pipeline(launched.file)
        with site.opened(pipeline, must_exist=False) as known:
            lock = known.store.lock(known.name)
            if lock is None or lock.holder.pid != launched.pid:
                return None
            begun = {str(r["run"]) for r in known.store.runs(known.name, 5)}
            return lock.holder.run if lock.holder.run in begun else None
    except PenstockError:
        return None


def cancel(site: Site, request: Request, form: Form) -> Response:
    run = str(request.path_params["run"])
    what = what_of(site, request)
    report = report_of(site, what, run, 0)
    with site.opened(what or str(report["pipeline"])) as known:
        stopped = launches.stop(known, run)
    if not stopped:
        raise ConfigError(
            "this run has no process of yours on this machine",
            code="ui.no_process",
            hint="stop it where it was started; one that died has left the lock, which the next "
            "run takes",
        )
    file = request.query_params.get("file")
    del form
    more = f"?file={file}" if file else ""
    return go(f"{at('runs', run)}{more}", "The run is stopping: what is sealed stays.")


def events(site: Site, request: Request) -> Response:
    """Streams the changing part of a run's page whenever it changes; ``done`` at the end."""

    async def stream() -> AsyncIterator[str]:
        import anyio
        from anyio.to_thread import run_sync

        began, last, before = time.monotonic(), "", None
        stays = site.open_streams < _MOST_OPEN
        site.open_streams += 1
        try:
            yield f"retry: {3000 if stays else random.randint(2000, 4000)}\n\n"
            while time.monotonic() - began < _LONGEST:
                text, ended, before = await run_sync(_part, site, request, before)
                if ended:
                    yield _event("done", "ended")
                    return
                yield _event("live", text) if text != last else ": still there\n\n"
                last = text
                if not stays:
                    return
                await anyio.sleep(_SECONDS)
        except PenstockError as e:
            yield _event("live", site.part("error_part.html", {"error": shown_error(e)}))
        finally:
            site.open_streams -= 1

    return StreamingResponse(stream(), media_type="text/event-stream")


events.is_stream = True  # type: ignore[attr-defined]


def ended(site: Site, request: Request) -> Response:
    """Makes the browser reload the page, as the run has ended."""
    del site, request
    return Response(status_code=204, headers={"HX-Refresh": "true"})


def _part(site: Site, request: Request, before: Any) -> tuple[str, bool, Any]:
    """Returns the part, whether the run has ended, and the count from which the next rate is
    computed."""
    what = what_of(site, request)
    report = report_of(site, what, str(request.path_params["run"]), _LINES)
    if report["status"] != "running":
        return "", True, None
    values = run_values(site, request, report, what)
    now = (time.monotonic(), values["total"]["read"])
    rate = None
    if before is not None and now[0] > before[0] and now[1] >= before[1]:
        rate = round((now[1] - before[1]) / (now[0] - before[0]))
    return site.part("run_live.html", {**values, "rate": rate}), False, now


def _event(name: str, text: str) -> str:
    return f"event: {name}\n" + "".join(f"data: {line}\n" for line in text.splitlines()) + "\n"


ROUTES = [
    ("POST", "/p/{file}/run", start),
    ("GET", "/launch/{id}", started),
    ("POST", "/runs/{run}/cancel", cancel),
    ("GET", "/runs/{run}/events", events),
    ("GET", "/runs/{run}/ended", ended),
]
