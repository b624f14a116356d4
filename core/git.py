"""The environment that git is called in: of the folder's own repository, asking nobody."""

import os

_OF_ANOTHER_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR")
"""Variables that would turn git to another repository than the folder's."""


def git_environment() -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in _OF_ANOTHER_REPOSITORY}
    return {**kept, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
