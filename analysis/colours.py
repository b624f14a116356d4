"""One colour for each kernel class, origin, GPU and run, the same on every page and in both themes.

The frequent classes take the Okabe-Ito hues, which stay apart under the usual colour-vision
deficiencies; the rare ones take muted hues. All have enough contrast on white and on the dark
background, so nothing depends on the theme.
"""

import hashlib
from collections.abc import Iterable

CATEGORY_COLOURS: dict[str, str] = {
    "gemm": "#0072b2",
    "gemv": "#56b4e9",
    "attention": "#d55e00",
    "conv": "#7a68c8",
    "softmax": "#b8860b",
    "norm": "#009e73",
    "loss": "#a8325e",
    "optimizer": "#aa4499",
    "embedding": "#44aa99",
    "index": "#8c8c3a",
    "reduction": "#3d8f4f",
    "elementwise": "#e69f00",
    "copy": "#cc79a7",
    "fill": "#c9b458",
    "random": "#b5651d",
    "collective": "#5f7fd4",
    "moe": "#6699cc",
    "other": "#8a94a6",
    "opaque": "#a08c72",
    "unknown": "#6b7280",
}
"Kernel class -> colour. The order is the order of legends."

ORIGIN_COLOURS: dict[str, str] = {
    "cublas": "#0072b2",
    "cutlass": "#56b4e9",
    "cudnn": "#d55e00",
    "aten": "#cc79a7",
    "flash_attention": "#e8782b",
    "inductor": "#009e73",
    "triton": "#44aa99",
    "nccl": "#5f7fd4",
    "cub": "#8c8c3a",
    "vllm": "#7a68c8",
    "tensorrt_llm": "#3d8f4f",
    "apex": "#aa4499",
    "user": "#e69f00",
    "unknown": "#6b7280",
}

SERIES_COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#7a68c8",
    "#8c8c3a",
)
"Runs and GPUs: position in the comparison, or a stable hash of the name."

IDLE = "rgba(128,138,152,0.28)"
IDLE_COLOURS = {
    "launch": "rgba(128,138,152,0.30)",
    "host": "rgba(128,138,152,0.48)",
    "synchronisation": "rgba(128,138,152,0.66)",
    "transfer": "rgba(128,138,152,0.84)",
    "unknown": "rgba(128,138,152,0.16)",
}
NEUTRAL = "#8a94a6"
GOOD = "#009e73"
BAD = "#d55e00"
RUN_A = "#8a94a6"
RUN_B = "#0072b2"
HOST, PROJECTED, KERNEL_SUM = "#8a94a6", "#56b4e9", "#0072b2"

GPU_COLOURS: dict[str, str] = {
    "3060": "#e69f00",
    "4090": "#009e73",
    "5090": "#d55e00",
    "A100": "#56b4e9",
    "H100": "#0072b2",
    "H200": "#7a68c8",
    "B200": "#aa4499",
    "cpu": "#8a94a6",
}


_PHASES = {
    "forward": "#0072b2",
    "backward": "#d55e00",
    "optimizer": "#009e73",
    "loss": "#e69f00",
    "no phase": "#8a94a6",
}


def category_colour(category: str | None) -> str:
    """Return the class's colour; that of `unknown` for a class not in the table."""
    return CATEGORY_COLOURS.get(category or "unknown", CATEGORY_COLOURS["unknown"])


def origin_colour(origin: str | None) -> str:
    """Return the origin's colour; that of `unknown` for an origin not in the table."""
    return ORIGIN_COLOURS.get(origin or "unknown", ORIGIN_COLOURS["unknown"])


def gpu_colour(model: str | None) -> str:
    """Return a GPU's colour: by the model number it contains, else by a hash of the name."""
    text = model or "cpu"
    for key, colour in GPU_COLOURS.items():
        if key.lower() in text.lower():
            return colour
    return stable_colour(text)


_LEAST_WHITE_CONTRAST = 3.2
_BLACK_ABOVE = 0.5


def luminance(colour: str) -> float:
    """Return the relative luminance (0-1) of `#rrggbb`, as WCAG 2 defines it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def chip_colour(colour: str) -> str:
    """Return the colour of a table's chip: lighter where white text on it could not be read.

    Streamlit writes black on a chip of a luminance over one half, else white.
    """
    if 1.05 / (luminance(colour) + 0.05) >= _LEAST_WHITE_CONTRAST:
        return colour
    lighter = colour
    for step in range(1, 20):
        if luminance(lighter) > _BLACK_ABOVE:
            break
        lighter = mixed(colour, WHITE, step / 20)
    return lighter


BLACK, WHITE = 0, 255


def mixed(colour: str, other: int, share: float) -> str:
    """Return a colour with a share of BLACK or WHITE in it."""
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(p + share * (other - p)):02x}" for p in parts)


def phase_colours(phases: Iterable[str]) -> dict[str, str]:
    """Return a colour for each phase of a run: the usual phases keep theirs on every chart."""
    others = sorted({p for p in phases} - set(_PHASES))
    free = [c for c in SERIES_COLOURS if c not in _PHASES.values()]
    return _PHASES | {p: free[i % len(free)] for i, p in enumerate(others)}


def stable_colour(name: str) -> str:
    """Return a series colour that is the same for this name on every page and in every session."""
    digest = hashlib.sha256(name.encode()).digest()
    return SERIES_COLOURS[digest[0] % len(SERIES_COLOURS)]


def series_colour(index: int) -> str:
    """Return a colour of its own for each of 24 series: lighter, then darker."""
    num = len(SERIES_COLOURS)
    other, share = ((BLACK, 0.0), (WHITE, 0.45), (BLACK, 0.4))[index // num % 3]
    return mixed(SERIES_COLOURS[index % num], other, share)


def category_order(categories: list[str]) -> list[str]:
    """Return the categories in legend order, those not in the table last."""
    known = list(CATEGORY_COLOURS)
    return sorted(categories, key=lambda c: (known.index(c) if c in known else len(known), c))
