"""Builds the command-line arguments of taps and targets, and parses ``--about``, ``--help`` and
stderr. Pure.

The option for the catalog is known (``--about``'s capabilities, ``--help``, the pipeline's
``catalog_argument``), or several options are tried in turn: the specification has only
``--catalog``, and older taps read ``--properties``. Neighbours: ``source`` starts taps, ``probe``
runs commands that answer once. Sources: specification, Synopsis; singer-python's ``parse_args``;
the Singer SDK's ``--about``.
"""

import re
from collections.abc import Iterable
from typing import Any, cast

import msgspec

from penstock.config.secret_texts import MARKS_ONLY
from penstock.protocols.singer.messages import About
from penstock.runtimes.contract import Argument, PrivateFile

CONFIG = "config.json"
CAPABILITIES = "capabilities"
CATALOG_ARGUMENT = "catalog_argument"

_CATALOG, _PROPERTIES = "--catalog", "--properties"
_OPTIONS = ("catalog", "properties", "discover", "state", "test", "about")
_REFUSALS = r"unrecognized|no such option|unknown|invalid option|unexpected|not defined|ambiguous"
_SECRET_NAMES = (
    "[Pp]ass(word|phrase|wd)|PASS|[Ss]ecret|SECRET|[Tt]oken|TOKEN|[Kk]ey$|KEY$|[Cc]redential"
    "|[Pp]rivate|[Aa]uth|_pw$|dsn|_url$|connection_string"
)
SECRET_WORD = "secret"


def config_file(config: dict[str, Any]) -> list[Argument]:
    """Returns the arguments for the configuration: a private file, which the tap may change
    (specification, Config)."""
    content = msgspec.json.encode(config)
    return ["--config", PrivateFile(CONFIG, content, writable=True)]


def catalog_options(abilities: dict[str, Any]) -> list[tuple[str, ...]]:
    """Returns the options for the catalog: sets of options that are given together, to be tried in
    this order. A tap that lists both options reads only one, so it gets both."""
    match abilities.get(CATALOG_ARGUMENT):
        case "catalog":
            return [(_CATALOG,)]
        case "properties":
            return [(_PROPERTIES,)]
        case "none":
            return [()]
        case _:
            pass
    words = abilities.get(CAPABILITIES)
    if isinstance(words, list) and words:
        known = [o for o in (_CATALOG, _PROPERTIES) if o.removeprefix("--") in words]
        return [tuple(known)]
    return [(_CATALOG,), (_PROPERTIES,), ()]


def catalog_files(options: Iterable[str], catalog: bytes) -> list[Argument]:
    given: list[Argument] = []
    for option in options:
        given += [option, PrivateFile(f"{option.removeprefix('--')}.json", catalog)]
    return given


def refused(options: Iterable[str], words: str) -> bool:
    """Returns whether the tap ended because it does not know these options. ``words``: its
    stderr."""
    names = "|".join(re.escape(o.lstrip("-")) for o in options)
    pattern = rf"(?i)(?:{_REFUSALS})[^\n]*\b(?:{names})\b"
    return bool(names) and re.search(pattern, words) is not None


def about_of(text: bytes) -> About | None:
    """Decodes the output of ``--about``; None where it is something else."""
    start = text.find(b"{")
    try:
        about = msgspec.json.decode(text[max(start, 0) :], type=About)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return about if about.settings or about.capabilities else None


def abilities_of(about: About) -> dict[str, Any]:
    """Returns the abilities of a spec: ``capabilities``, and the versions of the tap and of its SDK
    if given."""
    versions = {"version": about.version, "sdk_version": about.sdk_version}
    words = [w for w in about.capabilities if isinstance(w, str)]
    return {CAPABILITIES: words, **{k: v for k, v in versions.items() if v is not None}}


def abilities_of_help(text: str) -> dict[str, Any]:
    """Returns the abilities that a usage text lists as options; empty for any other text."""
    if "--config" not in text:
        return {}
    return {CAPABILITIES: [o for o in _OPTIONS if re.search(rf"--{o}\b", text)]}


def config_schema(settings: dict[str, Any]) -> dict[str, Any]:
    """Adds the keyword for secrets to a schema: to ``writeOnly`` properties, and to every property
    with a secret's name, declared or not, since few taps mark their secrets. The schema still
    accepts the same configurations."""
    schema = cast(dict[str, Any], _marked(settings, 0))
    given = schema.get("allOf", [])
    branches = cast(list[Any], given) if isinstance(given, list) else [given]
    schema["allOf"] = [*branches, {"$ref": f"#/{MARKS_ONLY}"}]
    schema[MARKS_ONLY] = _named_like_secrets()
    return schema


def unknown_schema() -> dict[str, Any]:
    """Returns the schema of a connector that publishes none: it allows anything."""
    return config_schema({"type": "object"})


def _named_like_secrets() -> dict[str, Any]:
    """Returns a schema that allows anything and marks properties named like a secret, at any
    depth."""
    inner = {"$ref": f"#/{MARKS_ONLY}"}
    return {
        "patternProperties": {_SECRET_NAMES: {SECRET_WORD: True}},
        "additionalProperties": inner,
        "items": inner,
    }


def _marked(node: Any, depth: int) -> Any:
    if depth > 64:
        return node
    if isinstance(node, list):
        return [_marked(n, depth + 1) for n in cast(list[Any], node)]
    if not isinstance(node, dict):
        return node
    schema = {k: _marked(v, depth + 1) for k, v in cast(dict[str, Any], node).items()}
    if schema.get("writeOnly") is True:
        schema[SECRET_WORD] = True
    return schema


_PREFIXED = re.compile(
    r"(?:^|[\s|\[])(?:CRITICAL|FATAL)\b[\s|:\]]*(?P<text>.*\S)"
    r"|level=(?:CRITICAL|FATAL)\s+message=(?P<message>.*\S)"
)

_RAISED = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Failure)\b(?::|$)")
_EXCEPTION_LINES = 4


def last_words(stderr: str) -> str | None:
    """Extracts the error to show from stderr: the last line of level CRITICAL or FATAL, which is
    the convention (getting-started, BEST_PRACTICES; logs as text, key=value and JSON are read),
    else the exception of the last traceback; None: neither."""
    lines = stderr.splitlines()
    for line in reversed(lines):
        if line.startswith("{"):
            found = _of_json(line)
        else:
            match = _PREFIXED.search(line)
            found = match and (match["text"] or match["message"])
        if found:
            # The SDK puts its own name between two bars.
            return found.rpartition(" | ")[2].strip() or found
    return _exception(lines)


def _exception(lines: list[str]) -> str | None:
    """Returns the exception at the end of the last traceback; None: there is none."""
    at = next((i for i in range(len(lines) - 1, -1, -1) if _RAISED.match(lines[i])), None)
    if at is None:
        return None
    return " ".join(x.strip() for x in lines[at : at + _EXCEPTION_LINES] if x.strip())


def _of_json(line: str) -> str | None:
    try:
        entry = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError:
        return None
    level = str(entry.get("level") or entry.get("levelname") or entry.get("severity") or "")
    text = entry.get("message") or entry.get("msg") or entry.get("event")
    return str(text) if level.upper() in ("CRITICAL", "FATAL") and text else None
