"""L11: what a JVM that dies amid a call leaves on the terminal."""

import socket
import struct
import subprocess
import sys
import threading

CALL = """
import os, sys
from py4j.clientserver import ClientServer, JavaParameters
from py4j.protocol import Py4JError
from penstock.spark.jvm import silence_dead_java

if sys.argv[2] == "silent":
    silence_dead_java()
try:
    ClientServer(java_parameters=JavaParameters(port=int(sys.argv[1]))).jvm.java.lang.System.gc()
except Py4JError as e:
    print("the caller is told:", type(e).__name__, flush=True)
os._exit(0)  # its server of callbacks would go on
"""


def _resets(server: socket.socket) -> None:
    """Takes one command and answers with a reset, as the socket of a killed process may."""
    connection, _ = server.accept()
    with connection:
        connection.recv(1 << 16)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _call(manner: str) -> subprocess.CompletedProcess[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        resets = threading.Thread(target=_resets, args=(server,), daemon=True)
        resets.start()
        port = str(server.getsockname()[1])
        command = [sys.executable, "-c", CALL, port, manner]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        resets.join(10)
    return done


def test_L11_a_call_that_dies_with_its_jvm_prints_no_trace() -> None:
    """py4j logs it as the root logger, with a trace; the error that follows is told by us."""
    loud, silent = _call("loud"), _call("silent")
    assert "Traceback" in loud.stderr and "the caller is told" in loud.stdout, loud
    assert silent.stderr == "" and silent.stdout == loud.stdout
