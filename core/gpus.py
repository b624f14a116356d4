"""Datasheet facts of the GPUs that users have, and how GPU names are recognised.

Every rate is dense (no structured sparsity) and, for tensor cores, with fp32 accumulation (int32
for int8): on GeForce cards that is half of what the vendor prints for fp16 accumulation. A dtype
that the card's tensor cores lack is absent.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from core.errors import UserError
from core.queues import gpu_slug

__all__ = [
    "GPUS",
    "GpuFacts",
    "datasheet_peaks",
    "find_gpu",
    "fits_gpu",
    "gpu_slug",
    "match_gpu_name",
    "model_words",
]

_T = 1e12
_GB = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """What the vendor states about one GPU model."""

    name: str
    pattern: str
    "Regular expression of the whole name after `_plain` (lower case, vendor words removed)."
    compute_capability: str
    num_sms: int
    memory_bytes: int
    "As printed (GB of 10^9); what a driver reports is a little less or, counted in GiB, more."
    memory_bytes_per_s: float
    flops_per_s: Mapping[str, float]
    "Dense peak by dtype: fp32 (CUDA cores), tf32, bf16, fp16, fp8, int8 (operations)."
    power_w: int
    source: str
    "The vendor's document these figures come from."


_AMPERE_GA102 = "NVIDIA Ampere GA102 GPU Architecture white paper v2.1, appendix A"
_ADA = "NVIDIA Ada GPU Architecture white paper v2.1, appendix A"
_BLACKWELL_RTX = "NVIDIA RTX Blackwell GPU Architecture white paper v1.1, appendix A"
_A100 = "NVIDIA A100 Tensor Core GPU datasheet (2021), rates without sparsity"
_H100 = "NVIDIA H100 Tensor Core GPU datasheet and architecture white paper, sparse rates halved"
_H200 = "NVIDIA H200 Tensor Core GPU datasheet, sparse rates halved"
_L4 = "NVIDIA L4 Tensor Core GPU datasheet, sparse rates halved"
_L40S = "NVIDIA L40S GPU datasheet, rates without sparsity"
_A10 = "NVIDIA A10 Tensor Core GPU datasheet, rates without sparsity"
_B200 = "NVIDIA HGX B200 datasheet, an eighth of the board, sparse rates halved"


def _rates(
    fp32: float, tf32: float, half: float, fp8: float | None, int8: float
) -> dict[str, float]:
    rates = {"fp32": fp32, "tf32": tf32, "bf16": half, "fp16": half, "int8": int8}
    if fp8 is not None:
        rates["fp8"] = fp8
    return {dtype: tera * _T for dtype, tera in rates.items()}


def _gpu(
    name: str, pattern: str, cc: str, sms: int, memory_gb: int, gb_per_s: float,
    rates: Mapping[str, float], power_w: int, source: str,
) -> GpuFacts:  # fmt: skip
    return GpuFacts(
        name=name,
        pattern=pattern,
        compute_capability=cc,
        num_sms=sms,
        memory_bytes=memory_gb * _GB,
        memory_bytes_per_s=gb_per_s * _GB,
        flops_per_s=rates,
        power_w=power_w,
        source=source,
    )


_A100_RATES = _rates(19.5, 156, 312, None, 624)
_H100_SXM_RATES = _rates(66.9, 494.7, 989.4, 1978.9, 1978.9)

GPUS: tuple[GpuFacts, ...] = (
    _gpu("NVIDIA GeForce RTX 3060", r"rtx 3060( 12gb)?", "8.6", 28, 12, 360,
         _rates(12.74, 12.74, 25.5, None, 101.9), 170,
         "GeForce RTX 3060 specification page (3584 cores, 1.777 GHz); tensor rates a SM from the "
         "GA102 white paper"),
    _gpu("NVIDIA GeForce RTX 3090", r"rtx 3090( 24gb)?", "8.6", 82, 24, 936,
         _rates(35.6, 35.6, 71, None, 284), 350, _AMPERE_GA102),
    _gpu("NVIDIA GeForce RTX 4060 Ti", r"rtx 4060 ?ti( (8|16)gb)?", "8.9", 34, 8, 288,
         _rates(22.06, 22.06, 44.1, 88.3, 176.5), 160,
         "GeForce RTX 4060 Ti specification page (4352 cores, 2.535 GHz); tensor rates a SM from "
         "the Ada white paper; memory of the 8 GB model"),
    _gpu("NVIDIA GeForce RTX 4090", r"rtx 4090( 24gb)?", "8.9", 128, 24, 1008,
         _rates(82.6, 82.6, 165.2, 330.3, 660.6), 450, _ADA),
    _gpu("NVIDIA GeForce RTX 5090", r"rtx 5090( 32gb)?", "12.0", 170, 32, 1792,
         _rates(104.8, 104.8, 209.5, 419, 838), 575, _BLACKWELL_RTX),
    _gpu("NVIDIA L4", r"l4( 24gb)?", "8.9", 58, 24, 300,
         _rates(30.3, 60, 121, 242.5, 242.5), 72, _L4),
    _gpu("NVIDIA L40S", r"l40s( 48gb)?", "8.9", 142, 48, 864,
         _rates(91.6, 183, 362, 733, 733), 350, _L40S),
    _gpu("NVIDIA A10", r"a10( 24gb| pcie)?", "8.6", 72, 24, 600,
         _rates(31.2, 62.5, 125, None, 250), 150, _A10),
    _gpu("NVIDIA A100-PCIE-40GB", r"a100 (pcie 40gb|40gb pcie)", "8.0", 108, 40, 1555,
         _A100_RATES, 250, _A100),
    _gpu("NVIDIA A100 80GB PCIe", r"a100 (pcie 80gb|80gb pcie)", "8.0", 108, 80, 1935,
         _A100_RATES, 300, _A100),
    _gpu("NVIDIA A100-SXM4-40GB", r"a100 (sxm4? 40gb|40gb sxm4?)", "8.0", 108, 40, 1555,
         _A100_RATES, 400, _A100),
    _gpu("NVIDIA A100-SXM4-80GB", r"a100 (sxm4? 80gb|80gb sxm4?)", "8.0", 108, 80, 2039,
         _A100_RATES, 400, _A100),
    _gpu("NVIDIA H100 PCIe", r"h100 (80gb )?pcie( 80gb)?", "9.0", 114, 80, 2000,
         _rates(51.2, 378, 756, 1513, 1513), 350, _H100),
    _gpu("NVIDIA H100 80GB HBM3", r"h100 (80gb hbm3|sxm5?( 80gb)?|80gb sxm5?)", "9.0", 132, 80,
         3350, _H100_SXM_RATES, 700, _H100),
    _gpu("NVIDIA H100 NVL", r"h100 nvl( 94gb)?", "9.0", 132, 94, 3900,
         _rates(60, 417.5, 835.5, 1670.5, 1670.5), 400, _H100),
    _gpu("NVIDIA H200", r"h200( 141gb)?( sxm5?| hbm3e)?", "9.0", 132, 141, 4800,
         _H100_SXM_RATES, 700, _H200),
    _gpu("NVIDIA B200", r"b200( sxm6?)?( 180gb)?", "10.0", 148, 180, 7750,
         _rates(75, 1125, 2250, 4500, 4500), 1000, _B200),
)  # fmt: skip
"""Models with facts. Another model is unknown: no guess from a similar name."""

_VENDOR_WORDS = re.compile(r"\b(nvidia|geforce|tesla|corporation|graphics|gpu)\b|\(r\)|\(tm\)")


def find_gpu(model: str) -> GpuFacts | None:
    """Return the facts of a model by the name a driver prints, or None if it is not in the table.

    The whole name must agree: laptop, Ti, D and MIG variants are other chips and stay unknown.
    """
    if re.search(r"\b(laptop|mobile|max-q|mig)\b", model.lower()):
        return None
    plain = _plain(model)
    return next((g for g in GPUS if re.fullmatch(g.pattern, plain)), None)


def datasheet_peaks(model: str | None) -> dict[str, float]:
    """Return the datasheet's rates under the names of measured peaks; {} for an unknown model.

    `copy_bytes_per_s`, `memory_bytes_per_s` (B/s) and `gemm_DTYPE_flops_per_s` (FLOP/s, dense).
    """
    facts = find_gpu(model or "")
    if facts is None:
        return {}
    rates = {f"gemm_{d}_flops_per_s": rate for d, rate in facts.flops_per_s.items()}
    memory = float(facts.memory_bytes_per_s)
    return {"copy_bytes_per_s": memory, "memory_bytes_per_s": memory, **rates}


@lru_cache(maxsize=4096)
def fits_gpu(wanted: str, model: str) -> bool:
    """Say whether a text means this model: everywhere that a user names a GPU.

    Every word of the text must be a word of the model's name, vendor words aside: `h100` fits
    `NVIDIA H100 80GB HBM3`, `L4` does not fit `NVIDIA L40S`. A text of vendor words alone, such as
    `nvidia`, fits each name that holds it.
    """
    words = model_words(wanted)
    if not words:
        return bool(wanted.strip()) and wanted.strip().lower() in model.lower()
    return words <= model_words(model) or gpu_slug(wanted) == gpu_slug(model)


def match_gpu_name(wanted: str, available: Sequence[str]) -> str:
    """Return the one available model that the user means by `4090` or `h100` (`fits_gpu`).

    A name equal apart from case wins, then one without further words. UserError, with the list,
    when none or several fit.
    """
    choices = sorted(set(available))
    listed = ", ".join(choices) or "none"
    for choice in choices:
        if wanted.strip().lower() == choice.lower() or gpu_slug(wanted) == gpu_slug(choice):
            return choice
    words = model_words(wanted)
    fits = [c for c in choices if words and fits_gpu(wanted, c)]
    exact = [c for c in fits if model_words(c) - {"rtx"} == words - {"rtx"}]
    if len(fits) == 1 or len(exact) == 1:
        return exact[0] if len(exact) == 1 else fits[0]
    if not words:
        raise UserError(f"gpu: {wanted!r} matches no model; available: {listed}")
    if not fits:
        raise UserError(f"gpu: {wanted!r} is not available; available: {listed}")
    raise UserError(f"gpu: {wanted!r} matches several: {', '.join(fits)}; write more of the name")


def model_words(model: str) -> set[str]:
    """Return the words of a model's name that tell it apart: {"rtx", "4090"}."""
    return set(_plain(model).split())


def _plain(model: str) -> str:
    """Return the name in lower case without vendor words, separators as single blanks."""
    text = _VENDOR_WORDS.sub(" ", model.lower())
    return " ".join(re.sub(r"[^a-z0-9.]+", " ", text).split())


def peak_values(peaks: Mapping[str, Any]) -> dict[str, float]:
    """Return name -> value of peaks, each a value or a record with one; what is not > 0 is out."""
    plain = {k: v.get("value") if isinstance(v, Mapping) else v for k, v in peaks.items()}
    return {
        k: float(v)
        for k, v in plain.items()
        if isinstance(v, int | float) and not isinstance(v, bool) and v > 0
    }


def imported_gpu(gpu: Mapping[str, Any]) -> str | None:
    """Return the key of the GPU that files describe: its uuid, else what distinguishes cards.

    Without a uuid that is model, memory, place on the bus and index, as far as files say: what
    differs in one of them is another card, what is equal in all may be several (`is_one_gpu`).
    """
    model = gpu.get("model") or gpu.get("name")
    if not model or gpu.get("uuid"):
        return f"import/{gpu['uuid']}" if model else None
    return "import/" + ", ".join([str(model), *_told_apart_by(gpu).values()])


def may_be_one(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Say whether two records of a model may be of one card: nothing that both say differs."""
    if first.get("uuid") and second.get("uuid"):
        return bool(first["uuid"] == second["uuid"])
    ours, theirs = _told_apart_by(first), _told_apart_by(second)
    return all(ours[name] == theirs[name] for name in ours.keys() & theirs.keys())


def _told_apart_by(gpu: Mapping[str, Any]) -> dict[str, str]:
    """Return what two cards of one model differ in; tools' counts of memory differ by up to 2 %."""
    labels = {}
    if gpu.get("memory_bytes"):
        gib = float(gpu["memory_bytes"]) / 2**30
        labels["memory"] = f"{round(gib) if gib < 32 else 4 * round(gib / 4)} GiB"
    if gpu.get("bus"):
        labels["bus"] = f"bus {gpu['bus']}"
    if isinstance(gpu.get("ordinal"), int):
        labels["ordinal"] = f"GPU {gpu['ordinal']}"
    return labels


def is_one_gpu(key: str | None) -> bool:
    """Say whether a key is of one physical GPU: what files tell only by model may be of several.

    `D-...` replaces a uuid in a scrubbed capture; older ones have `H-...`.
    """
    prefixes = ("import/GPU-", "import/MIG-", "import/D-", "import/H-")
    return key is not None and (not key.startswith("import/") or key.startswith(prefixes))
