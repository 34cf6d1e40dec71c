"""`python -m graphflow.cli` does what `graphflow` does."""

import sys

from graphflow.cli import main

if __name__ == "__main__":
    sys.exit(main())
