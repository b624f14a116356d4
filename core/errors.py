"""Errors that a user can cause and fix. Everything else that is raised is a bug."""

from pathlib import Path

_MAX_WHERE_CHARS = 400


class AppError(Exception):
    """Base of the expected failures; `exit_code` is what the command line returns for it."""

    exit_code = 3


class UserError(AppError):
    """Report input that is wrong: name the field, the value and what is allowed."""

    exit_code = 2


class CaptureError(AppError):
    """Report a file that cannot be read: which file, where in it, and what the user can do."""

    exit_code = 2

    def __init__(self, path: Path | str, where: str, remedy: str) -> None:
        where = " ".join(where.split())  # tools quote whole schemas; the message is one line
        if len(where) > _MAX_WHERE_CHARS:
            where = where[: _MAX_WHERE_CHARS - 3] + "..."
        self.path = str(path)
        self.where = where
        self.remedy = remedy
        super().__init__(f"{Path(self.path).name or self.path}: {where}. {remedy}")

    def __reduce__(self) -> tuple[type["CaptureError"], tuple[str, str, str]]:
        return type(self), (self.path, self.where, self.remedy)


class ToolUnavailableError(AppError):
    """Report a tool that this host lacks or may not use, with the fix."""

    exit_code = 3

    def __init__(self, tool: str, why: str, remedy: str) -> None:
        self.tool = tool
        self.why = why
        self.remedy = remedy
        super().__init__(f"{tool}: {why}. {remedy}")

    def __reduce__(self) -> tuple[type["ToolUnavailableError"], tuple[str, str, str]]:
        return type(self), (self.tool, self.why, self.remedy)


class RunFailedError(AppError):
    """Report a job that ended without a result."""

    exit_code = 3
