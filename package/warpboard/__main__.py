"""`python -m warpboard`."""

import sys

from warpboard import main

if __name__ == "__main__":
    sys.exit(main())
