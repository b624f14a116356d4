"""The GPUs of this host as places where jobs run."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from captures.identity import device_salt
from captures.private import PrivateWords
from core.config import data_dir, host_folder
from core.errors import UserError
from core.measured import FIGURES
from worker.passes import GpuTarget
from worker.probe import Gpu, probe_gpus

CPU = "cpu"


def find_targets(wanted: str = "all") -> list[tuple[str, GpuTarget]]:
    """Return (model, target) for `all`, `cpu`, an ordinal, a UUID or (part of) a model's name.

    `all` without a GPU is the CPU. Raises UserError for a GPU that is not here.
    """
    if wanted == CPU:
        return [(CPU, cpu_target())]
    gpus, check = probe_gpus()
    gpus = visible(gpus)
    if wanted == "all":
        return [(g.model, gpu_target(g)) for g in gpus] or [(CPU, cpu_target())]
    matching = [
        g
        for g in gpus
        if wanted in (str(g.ordinal), g.uuid, g.model) or wanted.lower() in g.model.lower()
    ]
    if not matching:
        here = ", ".join(f"{g.ordinal}: {g.model}" for g in gpus) or check["found"]
        raise UserError(f"gpu: {wanted!r} is not on this host ({here}); `cpu` always is")
    exact = [g for g in matching if wanted in (str(g.ordinal), g.uuid, g.model)]
    return [(g.model, gpu_target(g)) for g in exact or matching]


def join_targets(targets: list[tuple[str, GpuTarget]], num_gpus: int) -> tuple[str, GpuTarget]:
    """Return the place of a job over several GPUs: the first of one model; UserError for too few.

    On a CPU any number of ranks share it.
    """
    model, first = targets[0]
    if num_gpus == 1 or model == CPU:
        return model, first
    members = [target for name, target in targets if name == model][:num_gpus]
    if len(members) < num_gpus:
        raise UserError(f"gpus: {num_gpus} wanted, {len(members)} of {model} can be used here")
    return model, group_target(members)


def group_target(members: list[GpuTarget]) -> GpuTarget:
    """Return several GPUs as one target; its facts are those of the first and all their UUIDs."""
    selectors = [str(m.smi_selector) for m in members]
    return GpuTarget(
        visible_devices=",".join(selectors),
        smi_selector=",".join(selectors),
        facts={
            **members[0].facts,
            "num_gpus": len(members),
            "uuids": [m.facts.get("uuid") for m in members],
        },
    )


def without_uuids(target: GpuTarget) -> GpuTarget:
    """Return the target with hashes for UUIDs in its facts: for bundles that may be given away."""
    words = PrivateWords(salt=device_salt(host_folder()))
    facts = dict(target.facts)
    if facts.get("uuid"):
        facts["uuid"] = words.device(facts["uuid"]) or None
    if facts.get("uuids"):
        facts["uuids"] = [words.device(uuid) or None for uuid in facts["uuids"] if uuid]
    return replace(target, facts=facts)


def visible(gpus: list[Gpu]) -> list[Gpu]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES, if set, leaves: nvidia-smi does not heed it."""
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return gpus
    names = [name.strip() for name in allowed.split(",") if name.strip()]
    return [g for g in gpus if str(g.ordinal) in names or (g.uuid or "") in names]


def cpu_target() -> GpuTarget:
    return GpuTarget(visible_devices="", facts={"model": CPU} | measured_facts(CPU))


def gpu_target(gpu: Gpu) -> GpuTarget:
    """Return the target of one GPU, with its measured peaks if there are any."""
    selector = gpu.uuid or str(gpu.ordinal)
    return GpuTarget(
        visible_devices=selector,
        smi_selector=selector,
        facts=asdict(gpu) | measured_facts(selector),
    )


def measured_path(key: str) -> Path:
    """Return where `worker.measure` keeps the figures of one GPU (or `cpu`) on this host."""
    return data_dir().root / "measured" / f"{key}.json"


def load_measured(key: str) -> dict[str, Any] | None:
    """Return what `worker.measure` kept, or None; an unreadable file is as good as none."""
    try:
        measured = dict(json.loads(measured_path(key).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return measured if isinstance(measured.get("peaks"), dict) else None


def measured_key(target: GpuTarget) -> str:
    """Return the key of a target's figures: its UUID, else its ordinal, else `cpu`."""
    return target.smi_selector or CPU


def measured_facts(key: str) -> dict[str, Any]:
    """Return what was measured as a GPU's facts tell it; {} when nothing was."""
    measured = load_measured(key)
    return {} if measured is None else {name: measured.get(name) for name in FIGURES}
