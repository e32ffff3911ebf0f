"""The folder whose pipeline files are shown and written: their names, texts and references.

A file is identified by its name in the folder, and only a file directly in the folder is opened: no
path leads out, also not by a link. Writing is refused where the file has changed since it was read.
Neighbours: ``file_edit`` changes a text, ``secret_file`` keeps its secrets. Not here: the format of
a file (``config``).
"""

import hashlib
import os
import re
from codecs import BOM_UTF8
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from penstock.api.pipelines import pipeline_of
from penstock.config.command_line import Options
from penstock.config.home import Home
from penstock.config.pipeline import Pipeline
from penstock.config.pipeline_files import FILE_ENDINGS, files_of
from penstock.errors import ConfigError, PenstockError
from penstock.files import replace, write_new

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\.ya?ml")
MOST_BYTES = 4 << 20


class FolderFile(NamedTuple):
    """A pipeline file of the folder. ``name``, ``pipeline``: None where its ``fault`` is not only
    that a variable of a connector is not set here."""

    file: str
    name: str | None
    pipeline: Pipeline | None
    fault: PenstockError | None


class FileText(NamedTuple):
    """The text of a file, and a mark by which later changes are detected."""

    text: str
    mark: str


class Workspace:
    """A folder of pipeline files, and the home in which they run."""

    def __init__(self, folder: Path, home: Home) -> None:
        self.folder, self.home = folder.absolute(), home

    def names(self) -> list[str]:
        """Lists the names of the folder's pipeline files. Raises ``ConfigError``."""
        return [Path(file).name for file in files_of(self.folder)]

    def files(self) -> list[FolderFile]:
        """Reads the folder's pipeline files. A broken file has its ``fault``."""
        return [self.read(name) for name in self.names()]

    def read(self, file: str) -> FolderFile:
        """Reads one pipeline file. Raises ``ConfigError`` where the folder has no such file."""
        path = self.path(file)
        try:
            pipeline = pipeline_of(str(path), None, Options())
        except PenstockError as e:
            with suppress(PenstockError):
                past = self.past(file)
                return FolderFile(file, past.pipeline, past, e)
            return FolderFile(file, None, None, e)
        return FolderFile(file, pipeline.pipeline, pipeline, None)

    def pipeline(self, file: str) -> Pipeline:
        """Loads the pipeline of a file. Raises its ``ConfigError``."""
        return pipeline_of(str(self.path(file)), None, Options())

    def past(self, file: str) -> Pipeline:
        """Loads the pipeline of a file for what it did: a variable of a connector's configuration
        may be unset, as it is where runs get it from elsewhere. Raises its ``ConfigError``."""
        return pipeline_of(str(self.path(file)), None, Options(), starts_none=True)

    def path(self, file: str) -> Path:
        """Returns the path of a file in the folder. Raises ``ConfigError``."""
        path = self.folder / file
        inside = Path(file).name == file and not file.startswith(".")
        inside = inside and file.endswith(FILE_ENDINGS) and "\0" not in file
        if not inside or not path.is_file() or not path.resolve().parent.samefile(self.folder):
            raise ConfigError(
                "the folder has no such pipeline file",
                code="config.not_found",
                hint=f"`ls {self.folder}` lists what it has",
            )
        return path

    def text(self, file: str) -> FileText:
        """Reads a file's text. Raises ``ConfigError``."""
        try:
            raw = self.path(file).read_bytes()[: MOST_BYTES + 1]
            if len(raw) > MOST_BYTES:
                raise ConfigError(f"{file} is larger than 4 MB", code="config.unreadable")
            return FileText(raw.decode("utf-8-sig"), _mark(raw))
        except (OSError, UnicodeDecodeError) as e:
            raise ConfigError(
                f"{file} cannot be read: {e}", code="config.unreadable", where=file,
                hint="give yourself the right to read it, and save it as UTF-8 text",
            ) from None  # fmt: skip

    def new_name(self, name: str) -> str:
        """Returns the file name of a new pipeline. Raises ``ConfigError`` where it exists already,
        or is not a valid name."""
        file = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") + ".yaml"
        if _NAME.fullmatch(file) is None:
            raise ConfigError(
                "this cannot name a pipeline's file",
                code="config.file",
                hint="letters, digits, `-`, `_` and `.`, beginning with a letter or digit",
            )
        if (self.folder / file).exists():
            raise ConfigError(
                f"{file} exists already, and was not changed",
                code="config.exists",
                hint="give the pipeline another name",
            )
        return file

    def create(self, file: str, text: str) -> None:
        """Writes a new file. Raises ``ConfigError``."""
        try:
            write_new(self.folder / file, text.encode())
            os.chmod(self.folder / file, 0o666 & ~_umask())
        except OSError as e:
            raise _unwritable(file, e) from None

    def refuse_change(self, file: str, mark: str) -> None:
        """Raises ``ConfigError`` (``ui.changed``) where the file has changed since ``mark``."""
        if self.text(file).mark != mark:
            raise ConfigError(
                f"{file} was changed by another program or tab since this page was made, and is "
                "left as it is",
                code="ui.changed",
                hint="open the page again, and make the change there",
            )

    def save(self, file: str, text: str, mark: str) -> None:
        """Writes a file's text in one step. ``mark``: the mark of the text that was read. Raises
        ``ConfigError`` (``ui.changed``) where the file has changed since."""
        path = self.path(file)
        self.refuse_change(file, mark)
        try:
            target = path.resolve()
            mark_first = BOM_UTF8 if target.read_bytes()[:3] == BOM_UTF8 else b""
            replace(target, mark_first + text.encode(), permissions=target.stat().st_mode & 0o777)
        except OSError as e:
            raise _unwritable(file, e) from None


def _mark(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _unwritable(file: str, error: OSError) -> ConfigError:
    return ConfigError(
        f"{file} cannot be written: {error.strerror}",
        code="config.file",
        where=file,
        hint="give yourself the right to write in the folder",
    )
