"""Runs the server of ``penstock ui``: binds the address, opens the browser, serves until it is
stopped.

The browser opens a file that only this user can read, which redirects to the address, so that the
token is on no command line. Not here: the routes (``app``), access control (``security``).
"""

import html
import os
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from penstock.config.home import Home
from penstock.errors import ConfigError
from penstock.files import write_new
from penstock.web.security import Gate, is_loopback

PASSWORD = "PENSTOCK_UI_PASSWORD"
_SHORTEST = 12
_STOP_SECONDS = 2


def serve(
    folder: Path,
    home: Home,
    *,
    host: str,
    port: int,
    opened: bool,
    say: Callable[[str], None],
) -> None:
    """Serves the pages of the folder's pipelines until a signal. ``port`` 0: any free port;
    ``opened``: open the browser; ``say``: receives the address. Raises ``ConfigError``:
    ``ui.address``, ``ui.password``, ``config.not_found``."""
    import uvicorn

    from penstock.web.app import application

    if not folder.is_dir():
        raise ConfigError(
            f"there is no folder {folder}", code="config.not_found", where=str(folder),
            hint="name the folder of your pipeline files: penstock ui FOLDER",
        )  # fmt: skip
    password = _password(host)
    os.chdir(folder)  # where relative paths of its files start
    listening = _bound(host, port)
    bound = listening.getsockname()[1]
    gate = Gate(host, bound, password)
    name = "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
    base = f"http://{f'[{name}]' if ':' in name else name}:{bound}"
    app = application(Path.cwd(), home, gate)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="error",
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=_STOP_SECONDS,
            proxy_headers=False,
            ws="none",
            http="h11",
        )
    )
    address = f"{base}/open?token={gate.token}"
    say(address)
    if opened:
        threading.Thread(target=_open, args=(address,), name="browser", daemon=True).start()
    with suppress(KeyboardInterrupt):  # Ctrl-C is how the pages end
        server.run(sockets=[listening])


def _password(host: str) -> str | None:
    if is_loopback(host):
        return None
    given = os.environ.pop(PASSWORD, "")  # kept from runs and connectors
    if len(given) < _SHORTEST:
        raise ConfigError(
            f"beyond this machine ({host}) the pages need a password of {_SHORTEST} characters or "
            "more",
            code="ui.password",
            hint=f"set {PASSWORD} in the environment; without --host only this machine is served",
        )
    return given


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, kind, proto)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(64)
    except OSError as e:
        raise ConfigError(
            f"the address {host}:{port} cannot be used: {e.strerror or e}",
            code="ui.address",
            hint="give another one: penstock ui --port 0 takes any that is free",
        ) from None
    return listening


def _open(address: str) -> None:
    """Opens the browser with a file that only this user can read, and that is removed after a
    while."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-ui-"))
    file = folder / "open.html"
    text = f'<meta http-equiv="refresh" content="0;url={html.escape(address)}">'
    write_new(file, text.encode())
    webbrowser.open(file.as_uri())
    threading.Event().wait(20)
    file.unlink(missing_ok=True)
    folder.rmdir()
