"""Keeps the traces of a run that failed before it began: a refused configuration or plan, a
connector that cannot be installed, a pipeline that another run holds.

Such a run never had the lease, so the store does not know it. ``runs/RUN/attempt.json`` has its
report, in the form of a run without an end; ``log.jsonl`` in the same folder has its log until
then. ``penstock runs`` lists it with the others. Not here: dry runs, which keep nothing, and runs
that began (``engine.run.run``). Neighbours: ``start`` and ``cli`` call this,
``engine.inspect.runs`` reads it.
"""

import os
import re
import secrets
import shlex
import time
import traceback
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from penstock.config.command_line import short_name
from penstock.config.home import Home
from penstock.config.pipeline_files import is_file
from penstock.engine.channel.asked_log import AskedLog
from penstock.engine.channel.run_log import RunLog
from penstock.engine.inspect.runs import ATTEMPT, LOG
from penstock.engine.specs.observer import NullObserver
from penstock.errors import Cancelled, Defect, PenstockError
from penstock.files import replace
from penstock.runtimes.masking import Masker
from penstock.short_texts import bounded
from penstock.store.rules import unfinished_report

_NAMED = re.compile(r"^pipeline\s*:\s*([\"']?)([^\s\"'#{}]+)\1\s*(?:#.*)?$", re.MULTILINE)

_URL_PASSWORD = re.compile(r"://[^/@\s]*?:([^/@\s]+)@")
_LEAST = 4  # characters of a possible secret: shorter ones would mask common words

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def now_text() -> str:
    """Returns the time in the form of run reports: ISO 8601 in UTC, in seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def new_run_id() -> str:
    """Returns a ULID: 48 bits of time, 80 random bits, so that runs sort by their start."""
    number = (int(time.time() * 1000) << 80) | secrets.randbits(80)
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(125, -1, -5))


def keep_attempt(
    home: Home,
    run: str,
    pipeline: str,
    started_at: str,
    seconds: float,
    error: PenstockError,
    *,
    masker: Masker | None = None,
    asked: AskedLog | None = None,
    cause: BaseException | None = None,
) -> None:
    """Writes the report and the log of a run that failed before it began. ``asked``: the log until
    then. ``cause``: of a defect, whose trace goes into the log. Raises nothing: a failed write must
    not hide the run's error."""
    masker = masker or Masker(())
    with suppress(OSError, PenstockError):
        folder = home.run(run)
        log = RunLog(folder / LOG, NullObserver(), masker)
        if asked is not None:
            asked.begins(log)
        if cause is not None and isinstance(error, Defect):
            log.write("DEBUG", "".join(traceback.format_exception(cause)))
        log.write("ERROR", bounded(error.message))
        for problem in getattr(error, "problems", None) or ():
            log.write("ERROR", bounded(problem))
        log.close()
        said: dict[str, Any] = {
            **unfinished_report(pipeline, run, started_at, None),
            "status": "cancelled" if isinstance(error, Cancelled) else "failed",
            "exit_code": error.exit_code,
            "seconds": round(seconds, 3),
            "notes": ["it failed before it began: nothing was read, written or saved"],
            "error": error.as_report(),
            "log": str(folder / LOG),
        }
        replace(folder / ATTEMPT, msgspec.json.encode(masker.mask_data(said)))
        error.attempt = run


@contextmanager
def kept_fault(home: Home, words: Sequence[str], name: str | None = None) -> Generator[None]:
    """Keeps the error of the block, which reads a pipeline, as that of a run that failed before it
    began. ``words``: its file, or its source and destination; ``name``: its name, if the user gave
    one."""
    began, started_at = time.monotonic(), now_text()
    try:
        yield
    except PenstockError as e:
        if e.attempt is None and e.code != "usage":
            seconds = time.monotonic() - began
            word = words[0]
            named = name or (_name_of_file(word) if is_file(word) else _name_of_source(word))
            masker = Masker(secrets_of_words(words))
            keep_attempt(home, new_run_id(), named, started_at, seconds, e, masker=masker)
        raise


def secrets_of_words(words: Iterable[str]) -> set[str]:
    """Returns possible secrets in the command lines of connectors: each argument that is neither an
    option's name nor a file, each value after ``=``, and the password of a URL."""
    found: set[str] = set()
    for word in words:
        found.update(_URL_PASSWORD.findall(word))
        for number, argument in enumerate(_arguments(word)):
            option, equals, value = argument.partition("=")
            if equals:
                found.add(value)
            elif number and not option.startswith("-") and not os.path.exists(option):
                found.add(option)
    return {secret for secret in found if len(secret) >= _LEAST}


def _name_of_source(word: str) -> str:
    """Returns the name of a source that cannot be read; ``unnamed`` for an inline configuration."""
    return "unnamed" if word.lstrip().startswith(("{", "[")) else short_name(word)


def _arguments(word: str) -> list[str]:
    try:
        return shlex.split(word)
    except ValueError:
        return word.split()


def _name_of_file(word: str) -> str:
    """Returns the pipeline's name in a file that cannot be loaded, as far as its text shows it,
    else the file's name: of a file that does not exist with its suffix, since without it another
    file's pipeline may have that name."""
    found = None
    try:
        found = _NAMED.search(Path(word).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Path(word).name
    except (OSError, UnicodeDecodeError):
        pass
    return Path(word).stem if found is None else found[2]
