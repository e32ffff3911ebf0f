"""``python -m penstock``: the command line (``cli``)."""

import sys

from penstock.cli import main

if __name__ == "__main__":
    sys.exit(main())
