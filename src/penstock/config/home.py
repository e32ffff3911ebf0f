"""Locates the files in Penstock's home: state store, environments, jars, runs and logs.

The home is ``PENSTOCK_HOME``, else the user's data folder. Folders are created on first use, for
the user alone (0700). Not here: reading or writing their files."""

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from penstock.config.sections import LogSettings, StateSettings
from penstock.errors import ConfigError, not_ours
from penstock.files import make_folder

_KEEPS_ITS_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_LOOKS_HASHED = re.compile(r".*-[0-9a-f]{12}")
_RUN_ID = re.compile(r"[0-9A-Za-z_-]{1,64}")
_KEYWORD = re.compile(r"\s*(\w+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|([^\s']*))\s*")


class Home:
    """The home folder. ``path``: absolute; ``lasting``: the home that contains this one, else
    itself. Attributes and methods that return a folder create it."""

    def __init__(
        self, path: str | Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        chosen = path or (os.environ if env is None else env).get("PENSTOCK_HOME")
        try:
            self.path = Path(chosen or _user_folder()).expanduser().absolute()
        except RuntimeError:  # a path below ~, and there is no home folder
            raise _homeless() from None
        self.lasting = self.path

    def within(self, *names: str) -> "Home":
        """Returns a home in a folder of this one, with a store, logs and runs of its own. It uses
        this one's connectors and jars, which stay when it is removed."""
        inner = Home(self._folder(*names))
        inner.lasting = self.lasting
        return inner

    def __repr__(self) -> str:
        return f"Home({str(self.path)!r})"

    @property
    def connectors(self) -> Path:
        return _make(self.lasting / "connectors")

    @property
    def jars(self) -> Path:
        return _make(self.lasting / "jars")

    @property
    def runs(self) -> Path:
        return self._folder("runs")

    def run(self, run: str) -> Path:
        """Returns ``runs/RUN``: report, log and rejects of one run."""
        plain = _RUN_ID.fullmatch(run) is not None
        return self._folder("runs", run if plain else folder_name(run))

    def log(self, pipeline: str, settings: LogSettings | None = None) -> str:
        """Returns the folder of the pipeline's write-ahead log: an absolute path, or a URL where
        ``log.path`` is one. Each pipeline has its own, also below ``log.path``. A folder behind a
        URL is not created here."""
        place = self.log_place(pipeline, settings)
        return place if "://" in place else str(_make(Path(place)))

    def log_place(self, pipeline: str, settings: LogSettings | None = None) -> str:
        """Like :meth:`log`, and creates nothing."""
        path = settings.path if settings else None
        if path is None:
            return str(self.path / "log" / folder_name(pipeline))
        if "://" in path and not path.startswith("file://"):
            return f"{path.rstrip('/')}/{folder_name(pipeline)}"
        base = Path(path.removeprefix("file://")).expanduser().absolute()
        return str(base / folder_name(pipeline))

    def log_folder(self, pipeline: str, settings: LogSettings | None = None) -> Path:
        """Like :meth:`log`. Raises ``ConfigError`` for an object store."""
        place = self.log(pipeline, settings)
        if "://" in place:
            raise ConfigError(
                f"log.path {place!r} is an object store: the log needs a folder",
                code="config.log",
                hint="give a folder that this machine and every Spark worker share",
            )
        return Path(place)

    def state_url(self, settings: StateSettings | None = None) -> str:
        """Returns the state store's URL for SQLAlchemy. It may hold a password: never show it.
        Creates the folder of a SQLite file. Raises ``ConfigError``."""
        settings = settings or StateSettings()
        if settings.backend == "postgres":
            return postgres_url(settings.url or settings.connection or "")
        given = settings.path or settings.connection
        file = Path(given).expanduser().absolute() if given else self.path / "state.db"
        if settings.path is None and settings.connection is not None:
            file = file.with_name(
                f"{file.stem}.penstock{file.suffix}"
            )  # the given file is Rapidbyte's own
        _make(file.parent)
        return f"sqlite:///{file}"

    def _folder(self, *names: str) -> Path:
        return _make(self.path.joinpath(*names))


def folder_name(name: str) -> str:
    """Returns a folder name for any text: the text itself where it is plain, lower case and short,
    else a cleaned form with a hash, so that no two texts share a folder on any file system."""
    if _KEEPS_ITS_NAME.fullmatch(name) and not _LOOKS_HASHED.fullmatch(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    cleaned = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-_")[:40]
    return f"{cleaned or 'x'}-{digest}"


def postgres_url(text: str) -> str:
    """Converts a Postgres URL or a libpq string (``host=... dbname=...``) to a URL that names the
    driver. Raises ``ConfigError`` (``config.state_url``), which quotes no part of ``text``
    (L10)."""
    scheme, found, rest = text.partition("://")
    if found and scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        return f"postgresql+psycopg://{rest}"
    pairs = {m[1]: re.sub(r"\\(.)", r"\1", m[2] or m[3] or "") for m in _KEYWORD.finditer(text)}
    if found or not pairs or _KEYWORD.sub("", text):
        raise ConfigError(
            "state: this is neither a Postgres URL nor a libpq string",
            code="config.state_url",
            hint="write postgresql://USER@HOST/DATABASE",
        )
    database = quote(pairs.pop("dbname", ""), safe="")
    query = "&".join(f"{quote(k)}={quote(v, safe='')}" for k, v in pairs.items())
    return f"postgresql+psycopg:///{database}{'?' if query else ''}{query}"


def _user_folder() -> str:
    from platformdirs import user_data_dir

    folder = user_data_dir("penstock", appauthor=False)
    if not os.path.isabs(folder):  # no HOME, and no entry in the password database
        raise _homeless()
    return folder


def _homeless() -> ConfigError:
    return ConfigError(
        "there is no home folder: HOME is not set, and the system does not know this user",
        code="config.home",
        hint="set PENSTOCK_HOME or --home to a folder that you may write to",
    )


def _make(folder: Path) -> Path:
    try:
        make_folder(folder, 0o700)
    except OSError as error:
        if (full := not_ours(error)) is not None:
            raise full from None
        raise ConfigError(
            f"the folder {folder} cannot be made: {error.strerror}",
            code="config.home",
            where=str(folder),
            hint="set PENSTOCK_HOME or --home to a folder that you may write to",
        ) from None
    return folder
