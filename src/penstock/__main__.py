"""``python -m penstock``: the command line (``cli``)."""

import sys

from penstock.cli import command

if __name__ == "__main__":
    sys.exit(command())
