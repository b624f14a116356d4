"""Entry of `python -m app.cli`."""

import sys

from app.cli.main import main

sys.exit(main())
