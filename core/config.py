"""Paths in the data directory, and the settings read from the environment."""

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from core.errors import UserError

ROOT = Path(__file__).resolve().parent.parent
"""The source checkout (or install) that holds the rooms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataDir:
    """Name every path inside one data directory. Nothing is created until `ensure`."""

    root: Path

    @property
    def db_path(self) -> Path:
        return self.root / "warpboard.db"

    @property
    def captures(self) -> Path:
        """`captures/RUN_ID/FILE`: the stored captures of each run."""
        return self.root / "captures"

    @property
    def spans(self) -> Path:
        """`spans/RUN_ID/CAPTURE_ID.parquet`: per-launch records."""
        return self.root / "spans"

    @property
    def uploads(self) -> Path:
        """Incomplete uploads and imports; safe to delete when nothing runs."""
        return self.root / "uploads"

    @property
    def broker(self) -> Path:
        """Folders of the embedded filesystem broker."""
        return self.root / "broker"

    @property
    def spool(self) -> Path:
        """Bundles that an embedded worker has made and the dashboard has not acknowledged."""
        return self.root / "spool"

    @property
    def pictures_path(self) -> Path:
        """The small pictures of studies as they were last drawn; safe to delete."""
        return self.root / "pictures.json"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def token_path(self) -> Path:
        """The token of the embedded workers, mode 0600."""
        return self.root / "worker.token"

    @property
    def rules_path(self) -> Path:
        """The user's own kernel rules (TOML); may be absent."""
        return self.root / "rules.toml"

    @property
    def stack_path(self) -> Path:
        """JSON of the running dashboard (pid, url), written by `up`; may be stale."""
        return self.root / "stack.json"

    def ensure(self) -> "DataDir":
        """Create the folders (not the database) and return self; UserError if they cannot be.

        A new data directory is its owner's alone (0700); so is one that only we have used.
        """
        if not self.root.exists() or self.db_path.exists():
            with contextlib.suppress(OSError):  # another user's: he says who may enter
                self.root.mkdir(parents=True, exist_ok=True)
                self.root.chmod(0o700)
        for path in (self.captures, self.spans, self.uploads, self.broker, self.spool, self.logs):
            try:
                path.mkdir(parents=True, exist_ok=True, mode=0o700)
            except OSError as exc:
                raise UserError(
                    f"{path}: cannot be created ({exc.strerror}); choose another folder with --data"
                ) from exc
        return self


def data_dir(explicit: str | Path | None = None) -> DataDir:
    """Return the data directory: `--data`, else WARPBOARD_DATA, else ./data."""
    chosen = explicit or os.environ.get("WARPBOARD_DATA") or "data"
    return DataDir(root=expanded(chosen).absolute())


def expanded(text: str | Path) -> Path:
    """Return a path with `~` as the home folder it stands for; UserError where nobody has it."""
    try:
        return Path(text).expanduser()
    except RuntimeError as exc:
        raise UserError(f"{str(text)[:200]}: nobody has this home folder") from exc


def host_folder() -> Path:
    """Return the folder of this installation's own files on a host that may have no dashboard.

    The data directory if there is one, or one is named; else the user's folder for states.
    """
    data = data_dir()
    if os.environ.get("WARPBOARD_DATA") or data.root.is_dir():
        return data.root
    states = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return expanded(states) / "warpboard"


def broker_url(data: DataDir) -> str:
    """Return WARPBOARD_BROKER, the URL in WARPBOARD_BROKER_FILE, or the embedded broker's.

    A file keeps the password out of environments. UserError if it is not there.
    """
    if url := os.environ.get("WARPBOARD_BROKER"):
        return url
    if name := os.environ.get("WARPBOARD_BROKER_FILE"):
        return read_broker_file(name)
    return "filesystem://"


def has_own_broker() -> bool:
    """Say whether the broker is one that runs elsewhere, as for several hosts."""
    return bool(os.environ.get("WARPBOARD_BROKER") or os.environ.get("WARPBOARD_BROKER_FILE"))


def read_broker_file(name: str) -> str:
    """Return the URL in a broker file; UserError when there is none."""
    try:
        text = expanded(name).read_text().strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise UserError(f"broker file {name}: {getattr(exc, 'strerror', None) or exc}") from exc
    if not text:
        raise UserError(
            f"broker file {name}: is empty; write redis://:PASSWORD@HOST:6379/0 into it"
        )
    return text.splitlines()[0]


_MAX_TOKEN_BYTES = 4000
_TOKEN = re.compile(r"[!-~]{1,4000}")
"""What a header of HTTP can hold."""


def read_token_file(path: Path) -> str:
    """Return the token in a file; UserError that names what is wrong with it."""
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for without end
            raise UserError(f"--token-file {path}: is no file")
        with path.open("rb") as file:
            token = file.read(_MAX_TOKEN_BYTES + 100).strip().decode("latin-1")
    except (OSError, ValueError) as error:
        raise UserError(f"--token-file {path}: {getattr(error, 'strerror', error)}") from error
    if not _TOKEN.fullmatch(token):
        raise UserError(f"--token-file {path}: does not contain a token on one line")
    return token


_PLAIN = re.compile(r"[!-~]*")


def http_address(option: str, url: str) -> tuple[SplitResult, int | None]:
    """Return an address taken apart, and its port; UserError for one that none can be asked under.

    A password in it would be printed with the address; the token is what lets somebody in.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
        host = (parts.hostname or "").encode("idna").decode()
    except ValueError:
        parts, port, host = urlsplit(""), None, ""
    is_plain = _PLAIN.fullmatch(url) and not (parts.query or parts.fragment or parts.username)
    if parts.scheme not in ("http", "https") or not host or not is_plain:
        raise UserError(f"{option} {url!r}: is not a URL such as https://gpu.example.com:8501")
    return parts, port


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingSettings:
    """What reading foreign files may use: a base, and more for each byte of them."""

    memory_bytes: int = 1 << 30
    memory_per_byte: float = 12.0
    cpu_s: float = 25.0
    cpu_s_per_mb: float = 2.0
    disk_bytes: int = 1 << 30


def reading_settings() -> ReadingSettings:
    """Return the limits from WARPBOARD_READ_MEMORY_GB, _CPU_S and _DISK_GB, or the defaults."""
    base = ReadingSettings()
    return ReadingSettings(
        memory_bytes=int(_positive("WARPBOARD_READ_MEMORY_GB", base.memory_bytes / 2**30) * 2**30),
        cpu_s=_positive("WARPBOARD_READ_CPU_S", base.cpu_s),
        disk_bytes=int(_positive("WARPBOARD_READ_DISK_GB", base.disk_bytes / 2**30) * 2**30),
    )


def _positive(name: str, otherwise: float) -> float:
    given = os.environ.get(name)
    if not given:
        return otherwise
    try:
        value = float(given)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise UserError(f"{name}={given!r}: must be a number above 0")
    return value
