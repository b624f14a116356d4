"""`python -m worker.profile ... -- PROGRAM ARGS`."""

import sys

from worker.profile.command import main

if __name__ == "__main__":
    sys.exit(main())
