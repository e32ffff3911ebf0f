"""The pages to make a pipeline file and to change it: the form of each end beside the text, and the
text alone.

A form changes the values of ``config`` in the file's text, and nothing else. Not here: which fields
a form has (``forms``), where secrets are kept (``secret_file``), streams (``pages.streams``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from penstock.api.asking import AskedSpec, reference, source_reference
from penstock.api.new_file import FileEnd, pipeline_text, short_name
from penstock.api.pipelines import pipeline_of
from penstock.api.roles import AskedRole
from penstock.config.command_line import Options
from penstock.config.pipeline import ConnectorSection
from penstock.config.sections import Install
from penstock.errors import ConfigError, PenstockError
from penstock.protocols.json_schema.config_check import secret_values, validate_config
from penstock.web import secret_file
from penstock.web.connector_specs import is_table
from penstock.web.file_edit import edited, values_of
from penstock.web.forms.fields import FormBuilder, FormField, Path
from penstock.web.forms.posted import PostedForm
from penstock.web.jobs import JobObserver
from penstock.web.pages import planned, streams
from penstock.web.site import Form, Site, at, file_of, go, one, shown_error
from penstock.web.workspace import FileText

ENDS = (("source", AskedRole.source), ("destination", AskedRole.destination))
_TABLE = "delta:./lake"
_HIDDEN = "********"


@dataclass(slots=True)
class EditedEnd:
    """One end of the form. ``asked``: what its connector says; None: it is a table."""

    role: str
    use: str
    asked: AskedSpec | None
    config: dict[str, Any]
    fields: list[FormField] = field(default_factory=list[FormField])
    left: list[str] = field(default_factory=list[str])
    groups: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


# -- a new file


def new(site: Site, request: Request) -> Response:
    source = request.query_params.get("source", "")
    name = request.query_params.get("name", "")
    if source and not name:
        try:
            name = short_name(source_reference(source))
        except PenstockError as e:
            return site.page(request, "new.html", _new(source, _TABLE, "", shown_error(e)))
    into = request.query_params.get("destination", _TABLE)
    return site.page(request, "new.html", _new(source, into, name, None))


def _new(source: str, into: str, name: str, error: Any) -> dict[str, Any]:
    return {"source": source, "destination": into, "name": name, "error": error, "nav": "new"}


def make(site: Site, request: Request, form: Form) -> Response:
    """Asks both connectors, and writes the file that ``penstock new`` writes."""
    source, into = one(form, "source").strip(), one(form, "destination").strip()
    name = one(form, "name").strip()
    try:
        source_reference(source)
        reference(into)
        file = site.workspace.new_name(name or short_name(source_reference(source)))
    except PenstockError as e:
        values = _new(source, into, name, shown_error(e))
        return site.page(request, "new.html", values, status=400)
    title = name or short_name(source_reference(source))
    yes = one(form, "yes") == "yes"

    def work(observer: JobObserver) -> None:
        ends = [
            _file_end(site, use, role, observer, yes)
            for use, role in ((source, AskedRole.source), (into, AskedRole.destination))
        ]
        site.workspace.create(file, pipeline_text(title, *ends)[0])

    job = site.jobs.start(f"Making {file}", at("p", file, "edit"), work)
    return go(site.jobs.address(job))


def _file_end(site: Site, use: str, role: AskedRole, observer: JobObserver, yes: bool) -> FileEnd:
    if is_table(use):
        return FileEnd(reference(use).text)
    found = site.specs.ask(ConnectorSection(use=use), role, observer, yes=yes)
    spec = found.spec
    return FileEnd(found.use, spec.config_schema, found.secret_word, spec.documentation_url)


# -- the form


def edit(site: Site, request: Request) -> Response:
    file = file_of(request)
    read = site.workspace.text(file)
    if request.query_params.get("text") is not None:
        return _as_text(site, request, file, read)
    try:
        ends = ends_of(site, values_of(read.text))
    except PenstockError as e:
        return _as_text(site, request, file, read, e)
    if isinstance(ends, tuple):
        return _ask(site, file, *ends)
    return site.page(request, "edit.html", _values(site, file, read.text, read.mark, ends))


def ends_of(
    site: Site, values: Mapping[str, Any]
) -> "list[EditedEnd] | tuple[str, AskedRole, Install]":
    """Returns both ends of a file; or the connector that must be asked first, with its role and
    its install settings. Raises ``ConfigError``."""
    made: list[EditedEnd] = []
    for name, role in ENDS:
        section = values.get(name)
        given = cast(dict[str, Any], section) if isinstance(section, dict) else {}
        use = str(given.get("use") or "")
        config = given.get("config")
        own = cast(dict[str, Any], config) if isinstance(config, dict) else {}
        asked = None
        if not is_table(use):
            asked = site.specs.known(use, role)
            if asked is None:
                return use, role, _install(given)
        made.append(EditedEnd(name, use, asked, own))
    return made


def _install(section: Mapping[str, Any]) -> Install:
    given = section.get("install")
    own = cast(dict[str, Any], given) if isinstance(given, dict) else {}
    constraints = own.get("constraints")
    listed = cast(list[Any], constraints) if isinstance(constraints, list) else []
    return Install(builds=own.get("builds") is not False, constraints=tuple(map(str, listed)))


def _ask(site: Site, file: str, use: str, role: AskedRole, install: Install) -> Response:
    def work(observer: JobObserver) -> None:
        site.specs.ask(ConnectorSection(use=use, install=install), role, observer, yes=False)

    job = site.jobs.start(f"Asking {use}", at("p", file, "edit"), work)
    return go(site.jobs.address(job))


def _values(
    site: Site,
    file: str,
    text: str,
    mark: str,
    ends: list[EditedEnd],
    typed: Mapping[str, Mapping[Path, list[str]]] | None = None,
) -> dict[str, Any]:
    """Returns what the page shows. ``typed``: faults of what was typed, by end."""
    known = secret_file.known_variables(site.workspace.folder)
    problems: list[str] = []
    resolved: dict[str, dict[str, Any]] = {}
    try:
        pipeline = pipeline_of(str(site.workspace.path(file)), None, Options())
        resolved = {"source": pipeline.source.config, "destination": pipeline.destination.config}
    except ConfigError as e:
        problems = [p for p in e.problems or [e.message] if "is not set" not in p]
    for end in ends:
        if end.asked is None:
            continue
        faults = dict((typed or {}).get(end.role, {}))
        if end.role in resolved and typed is None:
            faults |= _faults(end.asked, resolved[end.role])
        schema = end.asked.spec.config_schema
        builder = FormBuilder(schema, end.asked.secret_word, end.role, known, faults)
        end.fields = builder.fields(end.config)
        end.left = builder.left_faults()
        end.groups = _groups(schema, end.fields)
    shown, hidden = _without_secrets(text, ends)
    return {
        "file": file, "ends": ends, "text": shown, "mark": mark, "hidden": hidden,
        "problems": problems, "nav": "edit",
    }  # fmt: skip


def _faults(asked: AskedSpec, config: dict[str, Any]) -> dict[Path, list[str]]:
    """The faults that ``check`` finds, by the path of their field."""
    try:
        validate_config(asked.spec, config, asked.secret_word)
    except ConfigError as e:
        found: dict[Path, list[str]] = {}
        for problem in e.problems or [e.message]:
            where, _, said = problem.partition(": ")
            path = tuple(where.split(".")[1:])
            if said.endswith(" is required") and said.startswith("'"):
                path, said = (*path, said.split("'")[1]), "a value is required"
            found.setdefault(path, []).append(said or problem)
        return found
    return {}


def _groups(schema: Any, fields: list[FormField]) -> list[tuple[str, str]]:
    """The groups that the schema names, and last the fields without one."""
    given = schema.get("groups") if isinstance(schema, dict) else None
    listed = [g for g in cast(list[Any], given or ()) if isinstance(g, dict)]
    named = [(str(g.get("id")), str(g.get("title") or "")) for g in listed]
    known = {id_ for id_, _ in named}
    for each in fields:
        if each.group not in known:
            each.group = ""
    used = {each.group for each in fields}
    return [(i, t) for i, t in named if i in used] + ([("", "")] if "" in used else [])


def _without_secrets(text: str, ends: list[EditedEnd]) -> tuple[str, bool]:
    """The text without secrets that stand in it, and whether there are any."""
    found: list[str] = []
    for end in ends:
        if end.asked is not None:
            schema, word = end.asked.spec.config_schema, end.asked.secret_word
            found += secret_values(schema, end.config, word)
    shown = text
    for secret in found:
        if "${" not in secret and len(secret) > 2:
            shown = shown.replace(secret, _HIDDEN)
    return shown, shown != text


# -- what the browser sends


def posted(site: Site, request: Request, form: Form) -> Response:
    file, do = file_of(request), one(form, "do")
    read = site.workspace.text(file)
    ends = ends_of(site, values_of(read.text))
    if isinstance(ends, tuple):
        return _ask(site, file, *ends)
    values = values_of(read.text)
    typed: dict[str, dict[Path, list[str]]] = {}
    secrets: dict[str, str] = {}
    changes: dict[tuple[str, ...], Any] = {}
    for end in ends:
        if end.asked is None:
            continue
        form_ = PostedForm(end.asked.spec.config_schema, end.asked.secret_word, end.role, form, do)
        made = form_.read(end.config)
        for path, secret in form_.secrets.items():
            name = secret_file.chosen_name(
                site.workspace.folder, file, str(values.get("pipeline") or file),
                (end.role, *path), _at(end.config, path),
            )  # fmt: skip
            secrets[name] = secret
            _put(made, path, f"${{{name}}}")
        typed[end.role] = form_.faults
        if made != end.config:
            end.config = made
            changes[end.role, "config"] = made
    text = edited(read.text, changes) if changes else read.text
    save = do in ("save", "check", "discover") and not any(typed.values())
    if not save:
        template = "edit_part.html" if request.headers.get("hx-request") else "edit.html"
        shown = _values(site, file, text, one(form, "mark", read.mark), ends, typed)
        return site.page(request, template, shown)
    site.workspace.refuse_change(file, one(form, "mark"))
    secret_file.store(site.workspace.folder, secrets)
    site.workspace.save(file, text, one(form, "mark"))
    if do == "check":
        return planned.start_check(site, file)
    if do == "discover":
        return streams.start_discover(site, file)
    return go(at("p", file, "edit"), f"{file} is saved.")


def _at(config: Any, path: Path) -> Any:
    for step in path:
        if isinstance(config, dict):
            config = cast(dict[str, Any], config).get(step)
        elif isinstance(config, list) and step.isdecimal():
            listed = cast(list[Any], config)
            config = listed[int(step)] if int(step) < len(listed) else None
        else:
            return None
    return config


def _put(config: Any, path: Path, value: str) -> None:
    """Puts a reference where a secret was typed."""
    for step in path[:-1]:
        config = config[int(step)] if isinstance(config, list) else config[step]
    if isinstance(config, list):
        config[int(path[-1])] = value
    else:
        config[path[-1]] = value


# -- the text


def _as_text(
    site: Site, request: Request, file: str, read: FileText, error: PenstockError | None = None
) -> Response:
    fault = error or site.workspace.read(file).fault
    try:
        ends = ends_of(site, values_of(read.text))
    except PenstockError:  # what is secret in it is not known
        ends = list[EditedEnd]()
    text, hidden = _without_secrets(read.text, ends if isinstance(ends, list) else [])
    values = {
        "file": file, "text": text, "hidden": hidden, "mark": read.mark, "nav": "edit",
        "error": None if fault is None else shown_error(fault),
    }  # fmt: skip
    return site.page(request, "text.html", values)


def save_text(site: Site, request: Request, form: Form) -> Response:
    """Saves a text, also one with faults, which the page then shows with their lines."""
    file = file_of(request)
    text = one(form, "text").replace("\r\n", "\n")
    if _HIDDEN in text:
        raise ConfigError(
            "this text has stars in the place of a secret", code="ui.hidden",
            hint="enter the secret in the form, which moves it into .env",
        )  # fmt: skip
    site.workspace.save(file, text, one(form, "mark"))
    return go(at("p", file, "edit"), f"{file} is saved.")


ROUTES = [
    ("GET", "/new", new),
    ("POST", "/new", make),
    ("GET", "/p/{file}/edit", edit),
    ("POST", "/p/{file}/edit", posted),
    ("POST", "/p/{file}/text", save_text),
    *streams.ROUTES,
]
