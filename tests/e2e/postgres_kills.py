"""Places of runs whose store is on a Postgres of their own, and what kills that Postgres.

A cell whose target is ``server`` (all processes of the server, which is back in two seconds) or
``backend`` (the run's sessions; the server then ends every other one and recovers) is struck by
this file, run as a program by the failpoint: ``postgres_kills.py FOLDER server|backend|start``. A
run outlasts either. ``kills.py`` runs all of it.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

from postgres_cluster import kill_server, running_cluster, sessions, start_again

STORE_TARGETS = ("server", "backend")
AWAY_SECONDS = 2.0


@contextmanager
def on_postgres() -> Iterator[str]:
    """A cluster that the places made in the block, by this thread, have their store on."""
    from e2e_harness import STATE

    with running_cluster() as folder:
        url = f"postgresql://penstock@/postgres?host={folder}"
        token = STATE.set({"backend": "postgres", "url": url})
        try:
            yield folder
        finally:
            STATE.reset(token)


def failpoint(named: str, state: dict[str, str] | None) -> str:
    """A cell's failpoint, where the target may be a Postgres: ``state`` is that of its place."""
    place, _, target = named.partition("@")
    if target not in STORE_TARGETS:
        return named
    assert state is not None, "no Postgres to kill: see on_postgres"
    folder = state["url"].rpartition("host=")[2]
    return f"{place}@run:{shlex.join([sys.executable, __file__, folder, target])}"


def main() -> None:
    folder, target = sys.argv[1:]
    if target == "start":
        time.sleep(AWAY_SECONDS)
        start_again(folder, wait=False)
    elif target == "backend":
        for pid in sessions(folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    else:
        kill_server(folder)
        subprocess.Popen([sys.executable, __file__, folder, "start"], start_new_session=True)


if __name__ == "__main__":
    main()
