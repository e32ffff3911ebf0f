"""The pages to create and to change a pipeline file: the form of each end next to the text, and the
text alone.

A form changes only the values of ``config`` in the file's text. Not here: which fields a form has
(``forms``), where secrets are kept (``secret_file``), streams (``pages.streams``).
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response

from penstock.api.asking import AskedSpec, reference, source_reference
from penstock.api.new_file import FileEnd, file_end, pipeline_text, short_name
from penstock.api.roles import AskedRole
from penstock.config.load import parse_pipeline
from penstock.config.pipeline import ConnectorSection
from penstock.config.relative_paths import placed_at
from penstock.config.sections import Install
from penstock.config.variables import EnvFileBeside
from penstock.errors import ConfigError, PenstockError
from penstock.model.catalog import ConnectorSpec
from penstock.protocols.json_schema.config_check import secret_values, validate_config
from penstock.web import secret_file
from penstock.web.connector_specs import is_table, schema_of_form
from penstock.web.file_edit import edited, values_of, with_breaks_of
from penstock.web.file_parts import named_secrets, parts_of
from penstock.web.forms.fields import FormBuilder, FormField, Path, input_name
from penstock.web.forms.posted import PostedForm
from penstock.web.jobs import Job, JobObserver, done_by
from penstock.web.merged_values import ABSENT, merged
from penstock.web.pages import planned, streams
from penstock.web.site import Form, Site, at, file_of, go, one, shown_error
from penstock.web.workspace import FileText
from penstock.web.yaml_text import same

ENDS = (("source", AskedRole.source), ("destination", AskedRole.destination))
_TABLE = "delta:./lake"
_REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*)\}", re.ASCII)


@dataclass(slots=True)
class EditedEnd:
    """One end of the form. ``asked``: its connector's specification; None: it is a table.
    ``listed``: its fields come from the index."""

    role: str
    use: str
    asked: AskedSpec | None
    config: dict[str, Any]
    listed: bool = False
    form: "DrawnForm | None" = None


@dataclass(slots=True)
class DrawnForm:
    """The fields of a part of the file. ``left``: faults that belong to no field."""

    title: str
    prefix: str
    fields: list[FormField]
    left: list[str]
    groups: list[tuple[str, str]]
    filled: bool = True
    faulty: bool = False


@dataclass(slots=True)
class Edits:
    """The changes that the browser sent. ``text``: the file's text, changed; ``typed``: faults of
    inputs, by the prefix of the form; ``unread``: invalid JSON, likewise; ``secrets``: by their
    variables; ``inputs``: likewise by their inputs; ``turns``: of lists; ``changes``: of the file's
    values, by their place."""

    text: str
    typed: dict[str, dict[Path, list[str]]] = field(
        default_factory=dict[str, dict[Path, list[str]]]
    )
    unread: dict[str, dict[Path, str]] = field(default_factory=dict[str, dict[Path, str]])
    secrets: dict[str, str] = field(default_factory=dict[str, str])
    inputs: dict[str, str] = field(default_factory=dict[str, str])
    turns: dict[str, str] = field(default_factory=dict[str, str])
    changes: dict[Path, Any] = field(default_factory=dict[Path, Any])


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
    """Queries both connectors, and writes the file that ``penstock new`` writes."""
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
        text = pipeline_text(title, *ends, own_names=True)[0]
        _refuse_name_of_another(site, file, text)
        site.workspace.create(file, text)

    job = site.jobs.start(f"Making {file}", at("p", file, "edit"), work)
    return go(site.jobs.address(job))


def _refuse_name_of_another(site: Site, file: str, text: str) -> None:
    """Raises ``ConfigError`` where a pipeline of the same name has run in another folder, whose
    state the new one would meet."""
    folder = site.workspace.folder
    read = parse_pipeline(text, os.environ, name=file, folder=folder, starts_none=True)
    with site.opened(placed_at(read, folder), must_exist=False) as known:
        where = known.elsewhere()
    if where is not None:
        raise ConfigError(
            f"a pipeline named {read.pipeline!r} has run already: of {where}",
            code="config.other_place",
            hint="go back, and give this one another name",
        )


def _file_end(site: Site, use: str, role: AskedRole, observer: JobObserver, yes: bool) -> FileEnd:
    if is_table(use):
        return FileEnd(reference(use).text)
    return file_end(site.specs.ask(ConnectorSection(use=use), role, observer, yes=yes))


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
    if isinstance(ends, tuple):  # viewing a page starts no connector
        return _as_text(site, request, file, read, ask=ends[0])
    site.held.keep_text(read.mark, read.text)
    values = _values(site, file, Edits(read.text), read.mark, ends)
    return site.page(request, "edit.html", {**values, "form_id": site.held.new_id(), "held": []})


def ends_of(
    site: Site, values: Mapping[str, Any]
) -> "list[EditedEnd] | tuple[str, AskedRole, Install]":
    """Returns both ends of a file; or the connector whose specification is needed first, with its
    role and its install settings. Raises ``ConfigError``."""
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


def ask(site: Site, request: Request, form: Form) -> Response:
    """Requests the specifications of a file's connectors."""
    del form
    file = file_of(request)
    values = values_of(site.workspace.text(file).text)
    if not isinstance(ends_of(site, values), tuple):
        return go(at("p", file, "edit"))
    return go(site.jobs.address(_start_asking(site, file, values)))


def _start_asking(site: Site, file: str, values: Mapping[str, Any]) -> Job:
    def work(observer: JobObserver) -> None:
        while isinstance(wanted := ends_of(site, values), tuple):
            use, role, install = wanted
            section = ConnectorSection(use=use, install=install)
            site.specs.ask(section, role, observer, yes=False)

    return site.jobs.start(f"Asking the connectors of {file}", at("p", file, "edit"), work)


def _ends_of_form(site: Site, file: str, values: Mapping[str, Any]) -> list[EditedEnd]:
    """Returns both ends of a file whose form was sent; a server that was started after the form was
    made requests the specifications first. Raises ``PenstockError``."""
    while isinstance(ends := ends_of(site, values), tuple):
        done_by(_start_asking(site, file, values))
    return ends


def _values(
    site: Site, file: str, edits: Edits, mark: str, ends: list[EditedEnd]
) -> dict[str, Any]:
    """Returns the values for the page."""
    values = values_of(edits.text)
    known = secret_file.known_variables(site.workspace.folder) | edits.secrets.keys()
    hidden = _secrets(values, ends)
    missing = {name for name in _REFERENCE.findall(edits.text) if name not in known}
    given = {**dict.fromkeys(missing, "0"), **os.environ, **edits.secrets}
    resolved: dict[str, dict[str, Any]] = {}
    problems: list[str] = []
    folder = site.workspace.folder
    try:
        pipeline = parse_pipeline(
            edits.text, given, name=file, folder=folder, beside=EnvFileBeside(folder)
        )
        resolved = {"source": pipeline.source.config, "destination": pipeline.destination.config}
    except ConfigError as e:
        problems = e.problems or [e.message]
    for end in ends:
        if end.asked is None:
            continue
        faults = dict(edits.typed.get(end.role, {}))
        if end.role in resolved:
            found = _faults(end.asked.spec, resolved[end.role], end.asked.secret_word)
            faults = {p: f for p, f in found.items() if not _names(_at(end.config, p), missing)}
            faults |= edits.typed.get(end.role, {})
        schema, word, listed = schema_of_form(end.asked)
        builder = FormBuilder(
            schema, word, end.role, known, faults, hidden, edits.turns, edits.unread.get(end.role)
        )
        fields = builder.fields(end.config)
        groups, end.listed = _groups(schema, fields), listed
        end.form = DrawnForm(end.role, end.role, fields, builder.left_faults(), groups)
    return {
        "file": file, "ends": ends, "parts": _drawn_parts(values, ends, edits, known, hidden),
        "text": site.hidden.hide(edits.text), "mark": mark, "problems": problems, "nav": "edit",
    }  # fmt: skip


def _drawn_parts(
    values: Mapping[str, Any], ends: list[EditedEnd], edits: Edits, known: set[str],
    hidden: set[str],
) -> list[DrawnForm]:  # fmt: skip
    made: list[DrawnForm] = []
    for part in parts_of(values, _options(ends, values)):
        prefix = ".".join(part.steps)
        spec = ConnectorSpec(protocol="penstock", config_schema=part.schema)
        faults = _faults(spec, part.value, "") | edits.typed.get(prefix, {})
        builder = FormBuilder(
            part.schema, "", prefix, known, faults, hidden, edits.turns, edits.unread.get(prefix)
        )
        fields = builder.fields(part.value)
        left = builder.left_faults()
        made.append(
            DrawnForm(part.title, prefix, fields, left, [("", "")], part.filled, bool(faults))
        )
    return made


def _options(ends: list[EditedEnd], values: Mapping[str, Any]) -> Any:
    """Returns the schema of a destination's ``options``: for the stream that it names, else its
    first."""
    asked = ends[1].asked
    streams = None if asked is None else asked.spec.abilities.get("streams")
    listed = _at(streams, ("streams",))
    named = _at(values, ("destination", "stream")) or _at(streams, ("default",))
    found = [cast(dict[str, Any], s) for s in cast(list[Any], listed or ()) if isinstance(s, dict)]
    chosen = next((s for s in found if s.get("name") == named), found[0] if found else None)
    return None if chosen is None else chosen.get("options")


def _names(value: Any, missing: set[str]) -> bool:
    """Returns whether a value refers to a variable that is not set."""
    return isinstance(value, str) and any(n in missing for n in _REFERENCE.findall(value))


def _faults(spec: ConnectorSpec, config: dict[str, Any], word: str | None) -> dict[Path, list[str]]:
    """Returns the faults that ``check`` finds, by the path of their field."""
    try:
        validate_config(spec, config, word)
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
    """Returns the groups that the schema names, and last the fields without a group."""
    given = schema.get("groups") if isinstance(schema, dict) else None
    listed = [g for g in cast(list[Any], given or ()) if isinstance(g, dict)]
    named = [(str(g.get("id")), str(g.get("title") or "")) for g in listed]
    known = {id_ for id_, _ in named}
    for each in fields:
        if each.group not in known:
            each.group = ""
    used = {each.group for each in fields}
    return [(i, t) for i, t in named if i in used] + ([("", "")] if "" in used else [])


def _secrets(values: Mapping[str, Any], ends: list[EditedEnd]) -> set[str]:
    """Returns the secrets in a file: in the configurations of its ends and of its profiles, by the
    connectors' schemas, and elsewhere by the names of keys."""
    found: set[str] = set()
    profiles = values.get("profiles")
    listed = cast(dict[str, Any], profiles) if isinstance(profiles, dict) else {}
    for end in ends:
        configs = [end.config, *(_at(p, (end.role, "config")) for p in listed.values())]
        if end.asked is not None:
            schema, word, _ = schema_of_form(end.asked)
            found |= {t for c in configs for t in secret_values(schema, c, word)}
    for key in ("profiles", "transforms", "enrichments"):
        found |= named_secrets(values.get(key))
    return {text for text in found if "${" not in text}


# -- what the browser sends


def posted(site: Site, request: Request, form: Form) -> Response:
    file, do = file_of(request), one(form, "do")
    id_ = one(form, "form") or site.held.new_id()
    lost = [name for name in form.get("held", ()) if name not in site.held.of(id_).inputs]
    lost = [name for name in lost if form.get(name) == [""]]
    form = site.held.filled(id_, form)
    read = site.workspace.text(file)
    edits, ends = _edits_now(site, file, read, form, do)
    by_script = bool(
        request.headers.get("hx-request")
    )  # sends the last button too, and never saves
    site.held.hold(id_, edits.inputs, edits.secrets, _comes_back_empty(do, by_script), form)
    held = {"form_id": id_, "held": [*site.held.of(id_).inputs]}
    taken = _taken(form, do)
    save = taken is not None or do in ("save", "check", "discover")
    save = save and not by_script and not any(edits.typed.values())
    if not save:
        template = "edit_part.html" if by_script else "edit.html"
        shown = _values(site, file, edits, one(form, "mark", read.mark), ends)
        return site.page(request, template, {**shown, **held})
    try:
        if lost:
            raise ConfigError(
                "secrets that were typed into this form are not there any more",
                code="ui.held", hint="type them again: " + ", ".join(lost),
            )  # fmt: skip
        if taken is not None:
            edits.text = edited(edits.text, _of_another(*taken, ends))
        site.workspace.refuse_change(file, one(form, "mark"))
        secret_file.store(site.workspace.folder, edits.secrets)
        if edits.text != read.text:
            site.workspace.save(file, edits.text, one(form, "mark"))
    except ConfigError as e:
        shown = {**_values(site, file, edits, read.mark, ends), **held, "error": _not_saved(e)}
        site.held.keep_text(read.mark, read.text)
        return site.page(request, "edit.html", shown, 409 if e.code == "ui.changed" else 400)
    site.held.drop(id_)
    if taken is not None:  # another connector was named, so it is started
        return go(site.jobs.address(_start_asking(site, file, values_of(edits.text))))
    if do == "check":
        return planned.start_check(site, file)
    if do == "discover":
        return streams.start_discover(site, file)
    return go(at("p", file, "edit"), f"{file} is saved.")


def _comes_back_empty(do: str, by_script: bool) -> str:
    """Returns how the names of the fields begin in which what was typed does not stay: all, but
    after a script's request only those of a list that lost an item, whose fields are others."""
    if not by_script:
        return ""
    return f"{do.removeprefix('drop:').rpartition(':')[0]}/" if do.startswith("drop:") else "\0"


def _taken(form: Form, do: str) -> tuple[str, str] | None:
    """Returns the role and the name of another connector that the user wants; None: none."""
    for role, _ in ENDS:
        named = one(form, f"use#{role}").strip()
        if named and do in ("save", f"use:{role}"):  # Enter in its field saves
            return role, named
    return None


def _of_another(role: str, use: str, ends: list[EditedEnd]) -> dict[tuple[str, ...], Any]:
    """Returns the changes to a file for another connector. A table's path is in its name. Raises
    ``ConfigError`` for a name that no connector can have."""
    (source_reference if role == "source" else reference)(use)
    end = next(each for each in ends if each.role == role)
    paths = is_table(use) or is_table(end.use)
    config = {k: v for k, v in end.config.items() if k != "path"} if paths else end.config
    made: dict[tuple[str, ...], Any] = {(role, "use"): use}
    if not same(config, end.config):
        made[role, "config"] = config or None
    return made


def _not_saved(error: ConfigError) -> dict[str, Any]:
    """Returns the error of a form that was not saved, which the page shows again as it was sent."""
    shown = shown_error(error)
    if error.code == "ui.changed":
        shown["hint"] = (
            "nothing was saved. The form has your changes over the file as it is now: look at the "
            "file's text next to it, and save again"
        )
    return shown


def _edits_now(
    site: Site, file: str, read: FileText, form: Form, do: str
) -> tuple[Edits, list[EditedEnd]]:
    """Returns what the browser changed, in the text as it is now, and both ends of the file. Where
    the file has changed since the form was made, only what the form changed is changed."""
    before = site.held.text(one(form, "mark", read.mark))
    if before is None or before == read.text:
        ends = _ends_of_form(site, file, values_of(read.text))
        return _edits(site, file, read.text, ends, form, do), ends
    had, now = values_of(before), values_of(read.text)
    edits = _edits(site, file, before, _ends_of_form(site, file, had), form, do)
    changes: dict[Path, Any] = {}
    for steps, mine in edits.changes.items():
        theirs = _at(now, steps)
        made = merged(_at(had, steps), mine, ABSENT if theirs is None else theirs)
        changes[steps] = None if made is ABSENT else made
    edits.text = edited(read.text, changes)
    return edits, _ends_of_form(site, file, values_of(edits.text))


def _edits(site: Site, file: str, text: str, ends: list[EditedEnd], form: Form, do: str) -> Edits:
    """Applies what the browser sent to the file's text. Untouched values stay."""
    values, edits = values_of(text), Edits(text)
    known = secret_file.known_variables(site.workspace.folder)
    hidden = _secrets(values, ends)
    changes: dict[tuple[str, ...], Any] = {}
    for end in ends:
        if end.asked is None:
            continue
        schema, word, _ = schema_of_form(end.asked)
        sent = PostedForm(schema, word, end.role, form, do, known=known, hidden=hidden)
        made = sent.read(end.config)
        for path, secret in sent.secrets.items():
            name = secret_file.chosen_name(
                site.workspace.folder, file, str(values.get("pipeline") or file),
                (end.role, *path), _at(end.config, path),
            )  # fmt: skip
            edits.secrets[name] = secret
            edits.inputs[input_name(end.role, path)] = secret
            _put(made, path, f"${{{name}}}")
        edits.typed[end.role], edits.unread[end.role] = sent.faults, sent.unread
        edits.turns |= sent.turns
        if not same(made, end.config):
            changes[end.role, "config"] = made
            end.config = made
    for part in parts_of(values, _options(ends, values)):
        prefix = ".".join(part.steps)
        sent = PostedForm(part.schema, "", prefix, form, do, known=known, hidden=hidden)
        made = sent.read(part.value)
        edits.typed[prefix], edits.unread[prefix] = sent.faults, sent.unread
        edits.turns |= sent.turns
        if not same(made, part.value):
            changes[part.steps] = part.written(made, values)
    edits.text, edits.changes = edited(text, changes), changes
    return edits


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
    """Puts a reference in place of a secret that was typed."""
    for step in path[:-1]:
        config = config[int(step)] if isinstance(config, list) else config[step]
    if isinstance(config, list):
        config[int(path[-1])] = value
    else:
        config[path[-1]] = value


# -- the text


def _as_text(
    site: Site, request: Request, file: str, read: FileText, error: PenstockError | None = None,
    ask: str | None = None, typed: str | None = None,
) -> Response:  # fmt: skip
    """``ask``: a connector whose specification is not known yet; ``typed``: a text that could not
    be saved, which the page shows in place of the file's."""
    fault = error or site.workspace.read(file).fault
    values = {
        "file": file, "text": site.hidden.hide(read.text) if typed is None else typed,
        "mark": read.mark, "nav": "edit", "ask": ask,
        "error": None if fault is None else shown_error(fault),
    }  # fmt: skip
    return site.page(request, "text.html", values, 200 if typed is None else 409)


def save_text(site: Site, request: Request, form: Form) -> Response:
    """Saves a text, also with faults, which the page then shows with their lines. A text that
    cannot be saved is shown again, with the reason."""
    file, typed, mark = file_of(request), one(form, "text"), one(form, "mark")
    read = site.workspace.text(file)
    try:
        text = with_breaks_of(read.text, site.hidden.restore(typed))
        site.workspace.refuse_change(file, mark)
        _store_typed(site, one(form, "form"), text)
        site.workspace.save(file, text, mark)
    except ConfigError as e:
        return _as_text(site, request, file, FileText(read.text, mark), e, typed=typed)
    return go(at("p", file, "edit"), f"{file} is saved.")


def _store_typed(site: Site, id_: str, text: str) -> None:
    """Stores the secrets that were typed into the form next to a text which names their
    variables. Raises ``ConfigError``."""
    folder = site.workspace.folder
    named = {*_REFERENCE.findall(text)} - secret_file.known_variables(folder)
    typed = site.held.of(id_).variables
    secret_file.store(folder, {name: v for name, v in typed.items() if name in named})


ROUTES = [
    ("GET", "/new", new),
    ("POST", "/new", make),
    ("GET", "/p/{file}/edit", edit),
    ("POST", "/p/{file}/edit", posted),
    ("POST", "/p/{file}/ask", ask),
    ("POST", "/p/{file}/text", save_text),
    *streams.ROUTES,
]
