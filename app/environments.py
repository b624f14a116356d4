"""Make and find the virtual environments: `python3 -m app.environments app|worker|run|dev`.

Prints the path of the Python to use, alone, on stdout; progress goes to stderr. Standard library
only, since it runs before anything is installed. The dashboard's environment (`.venv`) never has
torch, the worker's (`.venv-worker`) never pandas; a host whose Python has torch (NVIDIA's
container) lends it to the worker. WARPBOARD_PYTHON names a Python with torch, WARPBOARD_TORCH
which torch to install: `cpu`, `cuda` or a pip requirement.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

from core.errors import ToolUnavailableError
from core.python import module_command

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
IS_CLONE = (ROOT / "warpboard").is_file()
"""Else it was installed by pip, and its own folder is not a place for environments."""
TORCH = "torch==2.13.0"
TORCH_CPU = TORCH + "+cpu"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's own index of CPU builds, asked only where pip's configured places have none."""
STAMP = "installed.txt"
STILL_S = 10.0
"A user who waits longer than this wants to see that something goes on."


class EnvironmentFailure(Exception):
    """Say in one line why an environment cannot be made, and what to do."""


def say(text: str) -> None:
    """Print progress to stderr."""
    print(f"warpboard: {text}", file=sys.stderr, flush=True)


def python_for(purpose: str) -> Path:
    """Return the Python for `app`, `worker`, `run` or `dev`, making its environment if needed."""
    if purpose == "app":
        return ensure(".venv", ["app"], None, optional="ncu")
    if purpose == "dev":
        return ensure(".venv-dev", ["dev"], torch_choice(dev=True))
    chosen = os.environ.get("WARPBOARD_PYTHON")
    if chosen:
        return Path(chosen)
    host = host_python_with_torch()
    if purpose == "run" and host is not None:
        return host
    if host is not None:
        return ensure(".venv-worker", ["worker"], None, base=host)
    return ensure(".venv-worker", ["worker"], torch_choice())


def made_worker_python() -> Path | None:
    """Return the worker's Python if it is there already; makes nothing."""
    chosen = os.environ.get("WARPBOARD_PYTHON")
    if chosen:
        return Path(chosen)
    made = _place() / ".venv-worker" / "bin" / "python"
    if (_place() / ".venv-worker" / STAMP).exists():
        return made
    return host_python_with_torch()


def host_python_with_torch() -> Path | None:
    """Return the host's own python3 when torch is installed for it, as in NVIDIA's container."""
    python = shutil.which("python3", path=_path_without_venv())
    if python is None:
        return None
    code = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
    has_torch = subprocess.run([python, "-c", code], capture_output=True, check=False, cwd="/")
    return Path(python) if has_torch.returncode == 0 else None


def _place() -> Path:
    """Return the folder that holds the environments: the clone, else the user's own data."""
    if IS_CLONE:
        return ROOT
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "warpboard"


def torch_choice(*, dev: bool = False) -> str:
    """Return the requirement of torch: WARPBOARD_TORCH, else by whether this host has a GPU."""
    chosen = os.environ.get("WARPBOARD_TORCH", "").strip()
    if chosen == "cuda":
        return TORCH
    if chosen and chosen != "cpu":
        return chosen
    wants_cuda = not chosen and not dev and has_gpu()
    return TORCH if wants_cuda else TORCH_CPU


def has_gpu() -> bool:
    """Say whether an NVIDIA GPU's driver is on this host."""
    return Path("/dev/nvidiactl").exists() or shutil.which("nvidia-smi") is not None


def ensure(
    name: str,
    locks: list[str],
    torch: str | None,
    *,
    base: Path | None = None,
    optional: str | None = None,
) -> Path:
    """Return the Python of an environment, (re)made when what it should hold has changed."""
    folder = _place() / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    wanted = _wanted(locks, torch, base, optional)
    with open(folder.with_name(f"{name}.lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two commands at once: the second waits
        if _read(folder / STAMP) != wanted or not (folder / "bin" / "python").exists():
            _make(folder, locks, torch, base)
            if optional is not None:
                _install_optional(folder, optional)
            (folder / STAMP).write_text(wanted)
    return folder / "bin" / "python"


def _wanted(locks: list[str], torch: str | None, base: Path | None, optional: str | None) -> str:
    names = locks + ([optional] if optional else [])
    texts = [(REQUIREMENTS / f"{n}.lock").read_text() for n in names]
    return "\n".join([f"torch: {torch or '-'} base: {base or '-'}", *texts])


def _make(folder: Path, locks: list[str], torch: str | None, base: Path | None) -> None:
    (folder / STAMP).unlink(missing_ok=True)
    if not (folder / "bin" / "python").exists():
        say(f"making {folder.name}")
        shared = ["--system-site-packages"] if base is not None else []
        maker = str(base or sys.executable)
        venv = module_command("venv", *shared, str(folder), python=maker)
        _run(venv, f"cannot make {folder.name}", _venv_fix())
    for name in locks:
        say(f"installing {name} packages into {folder.name} (once; takes a minute or two)")
        # NVIDIA's container pins packages for its own environment; ours only adds beside it.
        _pip(folder, ["-r", str(REQUIREMENTS / f"{name}.lock")])
    if torch is not None:
        say(f"installing {torch} into {folder.name} (large; takes some minutes)")
        _install_torch(folder, torch)
    if os.environ.get("PYTHONDONTWRITEBYTECODE"):
        _compile(folder)
    say(f"{folder.name} is ready")


def _compile(folder: Path) -> None:
    """Compile everything now if Python is configured to write no bytecode later.

    Every command would compile all it imports anew, and take three to four times as long.
    """
    say("compiling (once)")
    rooms = [str(p) for p in ROOT.iterdir() if (p / "__init__.py").is_file()]
    python = str(folder / "bin" / "python")
    # -q -q: some packages hold files for other Pythons, which do not compile.
    words = ["-q", "-q", "-j", "0", str(folder / "lib"), *rooms]
    subprocess.run(
        module_command("compileall", *words, python=python),
        check=False,
        stdout=subprocess.DEVNULL,
    )


def _install_torch(folder: Path, torch: str) -> None:
    try:
        _pip(folder, [torch, "numpy"])
    except EnvironmentFailure:
        if not torch.endswith("+cpu"):
            raise
        _pip(folder, [torch, "--index-url", CPU_INDEX])
        _pip(folder, ["numpy"])


def _install_optional(folder: Path, name: str) -> None:
    if os.environ.get("WARPBOARD_WITHOUT_NCU_REPORT"):
        return
    try:
        _pip(folder, ["-r", str(REQUIREMENTS / f"{name}.lock")])
    except EnvironmentFailure as exc:
        say(f"left out {name} ({exc})")


def _pip(folder: Path, arguments: list[str]) -> None:
    """Install. Python compiles what is used at its first import; see `_compile`."""
    words = ["install", "--no-compile", "--progress-bar=off", "--disable-pip-version-check"]
    words += ["--no-input", *arguments]
    command = module_command("pip", *words, python=str(folder / "bin" / "python"))
    fix = "Check the network and pip's configuration, then run the same command again"
    _run(command, f"pip could not install {arguments[0]} {arguments[-1]}", fix)


def _run(command: list[str], what: str, fix: str) -> None:
    """Run to completion; report progress every STILL_S seconds."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PIP_CONSTRAINT", "PYTHONPATH")}
    environment["PYTHONUNBUFFERED"] = "1"
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as child:
        assert child.stdout is not None
        lines: list[str] = []
        reader = threading.Thread(target=lines.extend, args=(child.stdout,))
        reader.start()
        started = time.monotonic()
        while reader.is_alive():
            reader.join(STILL_S)
            if reader.is_alive():
                at = next((_brief(t) for t in reversed(lines) if _is_step(t)), "working")
                say(f"  {at}, {time.monotonic() - started:.0f} s")
    if child.returncode != 0:
        output = [line for line in lines if line.strip()] or ["no output"]
        errors = [line for line in output if "error" in line.lower()] or output
        raise EnvironmentFailure(f"{what}: {errors[-1].strip()}. {fix}")


def _is_step(line: str) -> bool:
    return line.lstrip().startswith(("Collecting", "Downloading", "Installing", "Using cached"))


def _brief(step: str) -> str:
    """Return one of pip's steps in a few words, without the address of an index or a long list."""
    verb, _, rest = step.strip().partition(" ")
    if verb == "Installing":
        return f"installing {rest.count(',') + 1} packages"
    return f"{verb.lower()} {rest.rpartition('/')[2]}"[:80]


def _venv_fix() -> str:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"Install it: sudo apt-get install python{version}-venv (or python3-venv)"


def _path_without_venv() -> str:
    own = os.environ.get("VIRTUAL_ENV")
    folders = os.environ.get("PATH", "").split(os.pathsep)
    ours = {str(ROOT / n / "bin") for n in (".venv", ".venv-worker", ".venv-dev")}
    ours |= {str(Path(own) / "bin")} if own else set()
    return os.pathsep.join(f for f in folders if f not in ours)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def main(arguments: list[str]) -> int:
    """Print the Python for one purpose."""
    purposes = ("app", "worker", "run", "dev")
    if len(arguments) != 1 or arguments[0] not in purposes:
        say(f"name one of {', '.join(purposes)}")
        return 2
    try:
        print(python_for(arguments[0]))
    except EnvironmentFailure as exc:
        say(str(exc))
        return 3
    except KeyboardInterrupt:
        say("stopped")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))


def probe_python() -> str:
    """Return the worker's Python if it is there, else this one: a probe needs no torch."""
    return str(made_worker_python() or sys.executable)


def torch_python() -> str:
    """Return a Python with torch, making the worker's environment if needed."""
    try:
        return str(python_for("run"))
    except EnvironmentFailure as exc:
        remedy = "Set WARPBOARD_PYTHON to a Python that has torch"
        raise ToolUnavailableError("torch", str(exc), remedy) from exc
