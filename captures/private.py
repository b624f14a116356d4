"""The one list of what is private in a capture, and how a text is cleaned of it.

Private is what names a person, a machine, a place on its disks or a secret. What a capture keeps of
it elsewhere (a user name in a range, a host in a message) is found by what its private fields say:
`PrivateWords` learns from those before they are dropped.

Texts are cut, never guessed back: a path keeps its last part where that is a file's name, or all
from `site-packages` on. Every pattern is linear: repetitions are bounded or end at a fixed byte.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable
from functools import lru_cache

from captures.encoded import without_base64, without_encoded
from captures.hosts import host_spans

_HASHED, _HASHED_BY_ALL = "D-", "H-"
"""How hashes of UUIDs begin: those of one installation, and an older form."""
REMOVED = "(removed)"
PATH_REMOVED = "(path)"

PRIVATE_FIELDS = (
    ("environment variables", r"ENVIRON|ENV_?VARS?\b|ENV_VAR|\bENV\b"),
    (
        "user",
        r"USER|LOGIN|LOGNAME|OWNER|E_?MAIL|AUTHOR(?!I)|ACCOUNT|SUBMITTER|\bWHO\b|(?:RUN|SUBMITTED)_BY",
    ),
    (
        "host",
        r"HOST|NODE_?NAME|\bNODE\b|DISPLAY_NAME|IP_?ADDR|MAC_?ADDR|MASTER_ADDR|TARGET_NAME"
        r"|COMPUTER|MACHINE_?NAME|\bADDRESS",
    ),
    ("serial numbers", r"SERIAL|UUID|GUID|MACHINE_?ID"),
    ("command line", r"COMMAND|CMD|ARGUMENT|\bARGS?\b|ARGV|EXECUT|APPLICATION_(?!PID)"),
    (
        "paths",
        r"PATH|DIRECTORY|_DIR\b|WORKING|\bCWD\b|\bPWD\b|FILE|FOLDER|OUTPUT|OUTUPT|INPUT|TRACE_?NAME",
    ),
    ("secrets", r"PASSW|SECRET|TOKEN|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY"),
)
"""Names of metadata whose value is dropped, by what they tell."""
_FIELDS = tuple((what, re.compile(p, re.I)) for what, p in PRIVATE_FIELDS)

_A = re.ASCII
_PERSONAL = (
    "home\\d*|homes|users?|u|ceph|scratch\\d*|pscratch|gscratch|netscratch|mnt|media|gpfs|lustre|nfs|"
    "beegfs|fsx|efs|afs|nfs\\d{1,3}|lustre\\d{1,3}|import|autofs|projappl|global/homes/\\w|global/\\w{1,20}|volumes|storage|cluster|blue|orange|"
    "sdf|groups?|private|documents and settings"
)
_SYSTEM = (
    "root|tmp|data\\d*|workspaces?|opt|usr|var|etc|srv|shared|projects?|lib\\w{0,8}|s?bin|run|proc|dev|"
    "work|export|app|nix|sys"
)
_PART = r"(?:[^\s\"'<>|:;,()\[\]{}\\/]|\\ ){1,255}"
_PATH = re.compile(  # like all of these it begins with a fixed text, which is found at C speed
    rf"/(?<![\w.]/)(?:(?P<personal>(?i:{_PERSONAL}))|(?P<system>{_SYSTEM}))"
    rf"(?![\w.-])(?P<rest>(?:/{{1,8}}{_PART}){{0,64}}/{{0,8}})",
    _A,
)
_HOME_WITHIN = re.compile(  # behind an option or below another root: `-I/home/ada`
    rf"/(?<=[\w.]/)(?:home\d{{0,3}}|homes|[Uu]sers)(?P<rest>(?:/{{1,8}}{_PART}){{1,64}}/{{0,8}})",
    _A,
)
_ANY_SOURCE = re.compile(
    rf"/(?<![\w.:/]/){_PART}/(?:{_PART}/){{1,62}}(?=[\w.+-]{{1,120}}\.(?:py|cu|cuh|cpp|cc|h|so)\b)",
    _A,
)
_TILDE = re.compile(rf"~(?<![\w~]~)(?P<rest>[\w.-]{{0,64}}(?:/{_PART}){{1,64}}/?)", _A)
_BACK = r"\\{1,4}(?![\"\\])"  # in JSON, the one before a quote belongs to it
_WIN_PART = r"[^\\/\"':;,<>|\r\n]{1,128}"
_WINDOWS = re.compile(
    rf"\b[A-Za-z]:(?:{_BACK}|/(?=(?i:users|documents)))(?P<rest>(?:{_WIN_PART}(?:{_BACK}|/)){{0,64}})"
    rf"(?P<last>[^\\/\"':;,<>|\s]{{0,128}})",
    _A,
)
_UNC = re.compile(rf"(?<![\\\w:])\\{{2,8}}[\w.-]{{1,64}}(?:{_BACK}{_WIN_PART}){{1,64}}", _A)
_FILE = re.compile(
    r"[\w.+@%=,<>-]{1,200}\.(?:pyc?|so(?:\.[\d.]{1,12})?|cpp|cxx|cc?|cuh?|h|hpp|json|pth?|bin|onnx|txt|log|"
    r"sqlite|nsys-rep|ncu-rep|ya?ml|sh|dll|exe|safetensors|ipynb|csv|gz|ptx|cubin|toml|pkl|"
    r"pickle|npy|parquet|qdrep|qdstrm)(?:\(\d+\)|:\d+)?",
    _A | re.I,
)
_PACKAGES = (
    re.compile(r"(?:site|dist)-packages/.{1,400}$", _A),
    re.compile(r"python\d[\d.]{0,8}/.{1,400}$", _A),
)
_SPACED_HOME = re.compile(rf"(?<=[Uu]sers)({_BACK}|/)[^/\\\"':;,<>|\r\n]{{1,64}}(?={_BACK}|/)", _A)
_CACHE = re.compile(r"torchinductor_[^/\\\"'\s]{1,64}", _A)

_URL = re.compile(r"://(?!\(address\))[^\s\"'<>|)\]},\\]{1,2000}", _A)
_AT = re.compile(r"(?:@|%40)(?P<host>[\w.-]{2,255})", _A)
_BEFORE_AT = re.compile(r"[\w.+%-]", _A)
_UUID_TAIL = re.compile(
    r"-(?<=[0-9a-fA-F]{8}-)[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
    r"(?![0-9a-zA-Z])",
    _A,
)
_MAC_TAIL = re.compile(
    r":(?<=[0-9a-fA-F]{2}:)(?<![0-9a-zA-Z:][0-9a-fA-F]{2}:)(?:[0-9a-fA-F]{2}:){4}[0-9a-fA-F]{2}"
    r"(?![0-9a-zA-Z:])",
    _A,
)
_IP_OF_NET = [
    re.compile(prefix + rest, _A)
    for prefix, rest in (
        (r"10\.(?<![\d.]10\.)", r"\d{1,3}\.\d{1,3}\.\d{1,3}(?![\d.]\d)"),
        (r"192\.168\.(?<![\d.]192\.168\.)", r"\d{1,3}\.\d{1,3}(?![\d.]\d)"),
        (r"172\.(?<![\d.]172\.)", r"(?:1[6-9]|2\d|3[01])\.\d{1,3}\.\d{1,3}(?![\d.]\d)"),
    )
]
_KEYS = {
    start: re.compile(rf"{start}(?<![A-Za-z0-9]{start}){rest}", _A)
    for start, rest in (
        ("hf_", r"[A-Za-z0-9]{16,200}"),
        ("sk-", r"[\w-]{16,200}"),
        ("gh", r"[pousr]_\w{20,200}"),
        ("github_pat_", r"\w{20,200}"),
        ("glpat-", r"[\w-]{16,200}"),
        ("xox", r"[abprs]-[\w-]{10,200}"),
        ("AKIA", r"[0-9A-Z]{12,40}"),
        ("ASIA", r"[0-9A-Z]{12,40}"),
        ("AIza", r"[\w-]{30,60}"),
        ("nvapi-", r"[\w-]{16,200}"),
        ("eyJ", r"[\w-]{10,2000}\.[\w-]{5,2000}(?:\.[\w-]{0,2000})?"),
    )
}
"""Keys recognised by their prefix."""
_KEY_START = re.compile("|".join(map(re.escape, _KEYS)), _A)
_SECRET_WORDS: tuple[str, ...] = (
    "token",
    "secret",
    "password",
    "passwd",
    "apikey",
    "api_key",
    "api-key",
)
_SECRET_WORDS += (
    "access_key",
    "access-key",
    "private_key",
    "credential",
    "bearer ",
    "authorization",
)
_SECRET_VALUE = re.compile(
    r"(?:token|secret|passwo?r?d|api[_-]?key|access[_-]?key|private[_-]?key|credentials?"
    r"|authorization|bearer)(?:[_-](?:id|key|value))?"
    r"(?P<mark>\\{0,3}[\"']?\s{0,3}(?:[=:]|\s)\s{0,3}(?:Bearer\s)?\\{0,3}[\"']?)"
    r"(?P<value>[^\s\"'\\,;&}\]]{4,2000})",
    _A | re.I,
)

_NAME_WORDS = ("user", "login", "logname", "owner", "host", "node", "computer", "master_addr")
_NAME_VALUE = re.compile(
    r"(?P<field>user(?:_?name)?|login|logname|owner|host(?:_?name)?|node_?name|computer_?name"
    r"|master_addr)(?P<mark>\\{0,15}[\"']?\s{0,3}[=:]\s{0,3}\\{0,15}[\"']?|\s{1,3})"
    r"(?P<value>[A-Za-z][\w.-]{2,63}+)(?![\w.(:/])",
    _A | re.I,
)
_NAMED = re.compile(
    r"\b(?:USER|LOGNAME|USERNAME|HOSTNAME|HOST|NODENAME|SLURMD_NODENAME|SLURM_JOB_USER|MASTER_ADDR"
    r"|COMPUTERNAME)=([\w.-]{3,64})",
    _A,
)
_NAMED_JSON = re.compile(
    r"\"(?:user|user_?name|login|logname|host|host_?name|node|node_?name|master_addr|computer_?name)"
    r"\\{0,15}\"\s{0,4}:\s{0,4}\\{0,15}\"([\w.-]{3,64})\\{0,15}\"",
    _A | re.I,
)
_HOMES = re.compile(
    r"/(?<![\w.]/)(?:home\d*|homes|[Uu]sers|u|global/homes/\w)\\?/([\w.-]{3,64})", _A
)
_STORES = (
    r"[pgn]?scratch\d*|netscratch|ceph|gpfs|lustre\d*|nfs\d*|beegfs|fsx|efs|afs"
    r"|eos|mnt|media|data\d*|work|storage|volumes|cluster|projects?|groups?|global"
)
"""Roots below which people have folders, and so have projects, models and datasets."""
_BELOW = r"(?:\\?/[\w.-]{1,64}){0,2}\\?/"
_HOMES_IN_STORE = (
    re.compile(
        rf"/(?<![\w.]/)(?:{_STORES}){_BELOW}(?:homes?|[Uu]sers?|people)\\?/(?:\w\\?/)?([A-Za-z][\w-]{{2,63}})(?![\w.])",
        _A,
    ),
    re.compile(
        rf"/(?<![\w.]/)(?:home\d*|homes|u|users?|{_STORES}){_BELOW}([A-Za-z])\\?/(\1[\w-]{{2,63}})(?![\w.])",
        _A,
    ),
    re.compile(
        rf"/(?<![\w.]/)(?:{_STORES})\\?/([A-Za-z][\w.-]{{2,63}})\\?/"
        r"(?:\.(?:cache|local|conda|config|ssh|venv|bash|vscode)|(?:mini|ana)conda\d?|miniforge\d?"
        r"|mambaforge|micromamba)(?![\w])",
        _A,
    ),
)
"""Where a path says whose the folder is: `/ceph/users/ada`, `/scratch/a/ada`, `.cache` in it."""
_NO_PERSON = re.compile(
    r"(?:llama|qwen|gpt|bert|roberta|t5|vit|resnet|mi[sx]tral|gemma|phi|falcon|deepseek|yolo|clip|stable"
    r"|sdxl|flux|whisper|opt-|bloom|imagenet|coco|cifar|mnist|laion|wiki|squad|openwebtext|pile|dolly"
    r"|hugging|dataset|checkpoint|ckpt|weight|project|shared|common|group|team|lab|share|software|apps)",
    _A | re.I,
)
"""How names of models, datasets and shared folders begin: they stay in ranges and operators."""
_HOME_CUT = re.compile(  # at the border of two cells, or of two fields of JSON
    r"/(?:home\d*|[Uu]sers)/?[\"']?\s?[,;|\t]\s?(?:\"\w{1,30}\"\s?:\s?)?[\"']?/?([A-Za-z][\w.-]{3,63})",
    _A,
)
_INDUCTOR_USER = re.compile(r"torchinductor_([\w.-]{3,64})", _A)
_HOST_AFTER_AT = re.compile(r"\b[\w.+-]{1,64}@([A-Za-z][\w.-]{3,255})", _A)
_HOST_AND_PORT = re.compile(r"=[\"']?([A-Za-z][A-Za-z0-9-]{2,62}):[1-6]\d{4}(?![\w:.])", _A)
"""Of what is private by itself, such as an environment: `RDZV=trainer:45123`."""
_NAMING = (
    (("USER=", "NAME=", "HOST=", "ADDR="), _NAMED),
    (('"user', '"User', '"USER', '"log', '"LOG', '"host', '"Host', '"HOST'), _NAMED_JSON),
    (('"node', '"Node', '"NODE', '"computer', '"master', '"MASTER', '"Login'), _NAMED_JSON),
    (("/home", "sers/", "sers\\/", "/u/"), _HOMES),
    (("/home", "sers"), _HOME_CUT),
    (("torchinductor_",), _INDUCTOR_USER),
    (("@",), _HOST_AFTER_AT),
    (("=",), _HOST_AND_PORT),
)
"""Patterns of names, each with texts one of which is there when it can match."""
_MAX_WORDS = 200
_PLAIN_WORDS = frozenset(
    {"root", "user", "users", "localhost", "host", "hostname", "ubuntu", "admin", "none", "true"}
    | {"false", "null", "worker", "runner", "node", "container", "docker", "nobody", "default"}
    | {"shared", "public", "python", "python3", "train", "model", "models", "data", "torch", "cuda"}
    | {
        "nvidia",
        "kernel",
        "forward",
        "backward",
        "optimizer",
        "attention",
        "triton",
        "main",
        "test",
    }
    | {"tests", "bench", "build", "work", "local", "master", "name", "unknown", "removed", "path"}
    | {"conda", "miniconda3", "anaconda3", "jovyan", "(removed)", "(path)", "(address)"}
)


_WORD_ALONE = re.compile(r"\w{0,1000}", _A)
"""A name of this form holds no path, address or secret unless it is a key."""


@lru_cache(maxsize=1 << 12)
def private_field(name: str) -> str | None:
    """Return what a metadata field of this name tells ("host", "paths", ...), None if nothing."""
    return next((what for what, pattern in _FIELDS if pattern.search(name)), None)


def hashed(identity: str, salt: bytes = b"") -> str:
    """Return the pseudonym of a GPU's UUID: equal for equal devices of one installation only.

    The salt is the installation's own (`captures.identity`); without one there is none.
    What was hashed before stays. Hashes of an older form, whose salt was everybody's, are salted.
    """
    plain = identity.strip().upper().removeprefix("GPU-")
    if not plain or plain.startswith(_HASHED):
        return identity
    if not salt:
        return ""
    if not plain.startswith(_HASHED_BY_ALL):
        public = hashlib.sha256(f"warpboard gpu identity\n{plain}".encode()).hexdigest()
        plain = _HASHED_BY_ALL + public[:24].upper()
    return _HASHED + hmac.digest(salt, plain.encode(), "sha256").hex()[:24].upper()


@lru_cache(maxsize=1 << 14)
def short_path(file: str) -> str:
    """Return the file of a stack frame from site-packages on, else its own name."""
    for mark in ("site-packages", "dist-packages"):
        at = file.find(mark)
        if at >= 0 and file[at + len(mark) : at + len(mark) + 1] in ("/", "\\"):
            return file[at:]
    return file[max(file.rfind("/"), file.rfind("\\")) + 1 :]


class PrivateWords:
    """Names and secrets that private fields held, to find them in every other text too.

    `salt`: the installation's, by which UUIDs of GPUs are hashed; without one they are dropped.
    """

    def __init__(self, words: Iterable[str] = (), *, salt: bytes = b"") -> None:
        self._salt = salt
        self._words: dict[str, re.Pattern[str]] = {}
        for word in words:
            self.add(word)

    def add(self, word: str) -> None:
        """Take a host, user name or secret; short and common words are not names."""
        plain = word.strip().strip("\"'")
        for part in {plain, plain.split(".")[0]} if "." in plain else {plain}:
            is_telling = 4 <= len(part) <= 256 and not part.replace(".", "").isdigit()
            if is_telling and part.lower() not in _PLAIN_WORDS and len(self._words) < _MAX_WORDS:
                literal = re.escape(part)  # a literal prefix, which makes the search fast
                around = rf"{literal}(?<![A-Za-z0-9]{literal})(?![A-Za-z0-9])"
                self._words[part] = re.compile(around, _A)

    def device(self, uuid: str) -> str:
        """Return the pseudonym of a GPU's UUID, "" for none."""
        return hashed(uuid, self._salt)

    def learn(self, text: str) -> None:
        """Take the names that a private text (an environment, a log, an event's data) gives."""
        for signs, pattern in _NAMING:
            if any(sign in text for sign in signs):
                for match in pattern.finditer(text):
                    self.add(match[1])
        self._learn_from_stores(text)
        for match in _secrets(text):
            self.add(match["value"])

    def learn_from_paths(self, text: str) -> None:
        """Take the users whose home folders a long text names."""
        for pattern in (_HOMES, _HOME_CUT, _INDUCTOR_USER):
            for match in pattern.finditer(text):
                self.add(match[1])
        self._learn_from_stores(text)

    def _learn_from_stores(self, text: str) -> None:
        """Take a folder's name below `/scratch` and its like where the path says it is a person's.

        `/scratch/NAME` alone may be a project, a model or a dataset.
        """
        for pattern in _HOMES_IN_STORE:
            for match in pattern.finditer(text):
                name = match[match.re.groups]
                if not _NO_PERSON.match(name):
                    self.add(name)

    def __len__(self) -> int:
        return len(self._words)

    def replaced(self, text: str) -> str:
        """Return the text without these words."""
        for word in sorted(self._words, key=len, reverse=True):
            if word in text:
                text = self._words[word].sub(REMOVED, text)
        return text


def _secrets(text: str) -> list[re.Match[str]]:
    """Return the matches of "token=...", "password: ..." and their like, in order."""
    lower = text.lower()
    matches: dict[int, re.Match[str]] = {}
    for word in _SECRET_WORDS:
        at = lower.find(word)
        while at >= 0:
            match = _SECRET_VALUE.match(text, at)
            after = at + len(word)
            if match and _is_secret(match["mark"], match["value"]):
                matches[match.start("value")] = match
                after = match.end()
            at = lower.find(word, after)
    return [matches[at] for at in sorted(matches)]


def _is_secret(mark: str, value: str) -> bool:
    """After a blank alone, only what looks like a key: "token embedding" is a layer."""
    if value.startswith(REMOVED):
        return False
    has_digit, has_letter = any(map(str.isdigit, value)), any(map(str.isalpha, value))
    if not mark.strip(" \t\\\"'"):
        return has_digit and has_letter and len(value) >= 8
    return has_letter and len(value) >= 6 and (has_digit or len(value) >= 12)


def clean(
    text: str,
    words: PrivateWords | None = None,
    removed: dict[str, None] | None = None,
    *,
    has_numbers: bool = False,
    keeps_system_paths: bool = False,
) -> str:
    """Return the text without paths, addresses, keys and the given words.

    `has_numbers`: what looks like an address may be a number with points between thousands.
    `keeps_system_paths`: folders like /usr and /opt stay, those of people go.
    `found` gets what was cut ("paths", "addresses", ...), in the order of the first finding.
    """
    if _WORD_ALONE.fullmatch(text) and not _KEY_START.search(text):
        word = without_base64(text, REMOVED)
        return word if words is None or not len(words) else _noted(word, words, removed)
    after = _clean_plain(text, removed, has_numbers, keeps_system_paths)

    def plain(decoded: str) -> str:
        return _clean_plain(decoded, None, has_numbers, keeps_system_paths)

    new = without_encoded(after, plain, REMOVED)
    _note(removed, "encoded texts", after, new)
    return new if words is None else _noted(new, words, removed)


def _clean_plain(
    text: str, removed: dict[str, None] | None, has_numbers: bool, keeps_system_paths: bool
) -> str:
    new = _URL.sub("://(address)", text) if "://" in text else text
    _note(removed, "addresses", text, new)
    after = _without_paths(new, keeps_system_paths)
    _note(removed, "paths", new, after)
    new = _without_addresses(after, has_numbers)
    _note(removed, "addresses", after, new)
    after = _without_keys(new)
    _note(removed, "secrets", new, after)
    new = _without_names(after)
    _note(removed, "names of users and hosts", after, new)
    return new


def _noted(text: str, words: PrivateWords, removed: dict[str, None] | None) -> str:
    new = words.replaced(text)
    _note(removed, "names of users and hosts", text, new)
    return new


def _note(removed: dict[str, None] | None, what: str, before: str, after: str) -> None:
    if removed is not None and before != after:
        removed[what] = None


def _without_paths(text: str, keeps_system: bool) -> str:
    if "sers/" in text or "sers\\" in text:  # a name in Users may hold blanks
        text = _SPACED_HOME.sub(r"\1user", text)
    if "\\" in text:
        text = _UNC.sub(PATH_REMOVED, text) if "\\\\" in text else text
        text = _WINDOWS.sub(_last_of_windows, text) if ":\\" in text else text
    elif ":/" in text and "sers/" in text:
        text = _WINDOWS.sub(_last_of_windows, text)
    if "/" in text:
        text = _PATH.sub(_last_of_personal if keeps_system else _last_of_path, text)
        text = _HOME_WITHIN.sub(_last_of_path, text)
        text = text if keeps_system else _ANY_SOURCE.sub("", text)
        if "~" in text and not keeps_system:
            text = _TILDE.sub(_last_of_path, text)
    return _CACHE.sub("torchinductor", text) if "torchinductor_" in text else text


def _last_of_path(match: re.Match[str]) -> str:
    rest = match["rest"]
    if not rest.strip("/"):
        return match[0] if not rest else PATH_REMOVED
    rest = rest if "//" not in rest else re.sub("/+", "/", rest)
    for pattern in _PACKAGES:
        if kept := pattern.search(rest):
            return kept[0]
    parts = [p for p in rest.split("/") if p]
    is_personal = "personal" not in match.re.groupindex or match["personal"] is not None
    is_personal = is_personal or not {"home", "Users", "users", "homes"}.isdisjoint(parts[:-1])
    if rest.endswith("/"):
        return ""
    if _FILE.fullmatch(parts[-1]) and not (is_personal and len(parts) == 1):
        return parts[-1]
    return PATH_REMOVED if is_personal else parts[-1]


def _last_of_personal(match: re.Match[str]) -> str:
    return _last_of_path(match) if match["personal"] is not None else match[0]


def _last_of_windows(match: re.Match[str]) -> str:
    last = match["last"]
    if _FILE.fullmatch(last):
        return last
    return PATH_REMOVED if last else ""


def _without_addresses(text: str, has_numbers: bool) -> str:
    if "@" in text or "%40" in text:
        text = _cut(text, ((_start_before_at(text, m), m.end()) for m in _AT.finditer(text)))
    if "-" in text:
        text = _cut(text, ((m.start() - 8, m.end()) for m in _UUID_TAIL.finditer(text)))
        text = text.replace("GPU-(removed)", REMOVED).replace("MIG-(removed)", REMOVED)
    if text.count(":") >= 5:
        text = _cut(text, ((m.start() - 2, m.end()) for m in _MAC_TAIL.finditer(text)))
    text = _cut(text, host_spans(text))
    if text.count(".") >= 3:
        for pattern in _IP_OF_NET:
            text = pattern.sub(_number_stays if has_numbers else REMOVED, text)
    return text


def _number_stays(match: re.Match[str]) -> str:
    """Cut an address, but not a number with points between its thousands."""
    groups = match[0].split(".")[1:]
    return match[0] if all(len(group) == 3 for group in groups) else REMOVED


def _start_before_at(text: str, match: re.Match[str]) -> int:
    at = match.start()
    least = max(at - 64, 0)
    while at > least and _BEFORE_AT.match(text, at - 1):
        at -= 1
    return at


def _cut(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return the text with these parts removed; of two that overlap, the first."""
    parts, last = [], 0
    for start, end in spans:
        if start >= last:
            parts += [text[last:start], REMOVED]
            last = end
    return "".join([*parts, text[last:]]) if parts else text


def _without_keys(text: str) -> str:
    for start, pattern in _KEYS.items():
        if start in text:
            text = pattern.sub(REMOVED, text)
    return _cut(text, (m.span("value") for m in _secrets(text)))


def _without_names(text: str) -> str:
    """Cut what is said to be somebody's name, or a host's: `user=ada`, `--host gpu7`."""
    lower = text.lower()
    if "=" not in text and "--" not in text and ":" not in text:
        return text
    spans: dict[int, int] = {}
    for word in _NAME_WORDS:
        at = lower.find(word)
        while at >= 0:
            match = None if text[at - 1 : at].isalnum() and at else _NAME_VALUE.match(text, at)
            if match and _is_name(match, is_option=text[max(at - 2, 0) : at] == "--"):
                spans[match.start("value")] = match.end("value")
            at = lower.find(word, at + len(word))
    return _cut(text, sorted(spans.items())) if spans else text


def _is_name(match: re.Match[str], *, is_option: bool) -> bool:
    mark, value = match["mark"].strip(), match["value"]
    if match["field"].lower().startswith(("host", "node", "computer", "master")):
        is_telling = "." not in value and ("-" in value or any(map(str.isdigit, value)))
        if not is_telling:  # `host=pinned`; a full name of a host is found without its field
            return False
    is_said = "=" in mark or (":" in mark and (mark != ":" or "name" in match["field"].lower()))
    return (is_said or (is_option and not mark)) and value.lower() not in _PLAIN_WORDS


class Cleaner:
    """Cleans many texts of one capture by one list; equal texts are cleaned once."""

    def __init__(
        self, words: PrivateWords | None = None, removed: dict[str, None] | None = None
    ) -> None:
        self.words = PrivateWords() if words is None else words
        self.removed: dict[str, None] = {} if removed is None else removed
        self._cached = lru_cache(maxsize=1 << 14)(self._clean)

    def text(self, text: str) -> str:
        """Return the text without what is private."""
        return self._cached(text)

    def _clean(self, text: str) -> str:
        return clean(text, self.words, self.removed)
