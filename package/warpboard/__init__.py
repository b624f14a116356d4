"""The console command of an installed Warpboard.

The rooms (`app`, `core`, `worker`, ...) lie in the folder `_rooms` of this package, as they do in a
clone: their plain names are nobody else's in an environment. Only the command's own process, and
those that it starts, have that folder on their path.
"""

import os
import sys

ROOMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_rooms")


def main() -> int:
    """Run the command line; `profile` needs nothing but a Python."""
    sys.path.insert(0, ROOMS)
    words = sys.argv[1:]
    if words[:1] == ["profile"]:
        from worker.profile.command import main as profile

        return int(profile(words[1:]))
    try:
        from app.cli.main import main as command
    except ModuleNotFoundError as error:
        sys.exit(f"warpboard: {error.name} is not installed: pip install 'warpboard[dashboard]'")
    return int(command(words))
