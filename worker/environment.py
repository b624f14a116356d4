"""The environment that a job's programs get: what they need, and nothing of the worker's own."""

import os
import re
from collections.abc import Mapping

SETTINGS = "WARPBOARD_WORKER_SETTINGS"
"""What a worker's main process tells its Celery processes; see `worker.settings`."""
PASS_VARIABLE = "WARPBOARD_PASS_ENV"
"""More names that jobs get, `,` between: the operator's choice."""

_ALLOWED = re.compile(
    r"(PATH|HOME|USER|LOGNAME|SHELL|TERM|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|TMP|TEMP|HOSTNAME"
    r"|PYTHON\w*|VIRTUAL_ENV|CONDA_(PREFIX|DEFAULT_ENV)|LD_LIBRARY_PATH|LIBRARY_PATH|CPATH"
    r"|C(PLUS)?_INCLUDE_PATH|CC|CXX|CFLAGS|CXXFLAGS|MAX_JOBS|XDG_(CACHE_HOME|RUNTIME_DIR)"
    r"|(CUDA|CUDNN|CUBLAS|CUTLASS|NVIDIA|NV|NSYS|NVTX|NCCL|NVSHMEM|UCX|GLOO|FI|MKL|OMP|KMP|GOMP"
    r"|OPENBLAS|NUMEXPR|TORCH|TORCHINDUCTOR|TORCHDYNAMO|PYTORCH|TRITON|INDUCTOR|ATEN|XLA|JAX|TF"
    r"|CUPY|HIP|HSA|ROCR|ROCM|ROCBLAS|MIOPEN|AMD|GPU|DNNL|ONEDNN|FLASHINFER|VLLM|SGLANG)_\w+"
    r"|HF_HOME|HF_HUB_(CACHE|OFFLINE)|HF_DATASETS_(CACHE|OFFLINE)|TRANSFORMERS_(CACHE|OFFLINE)"
    r"|WARPBOARD_(GPU_LOCK|ALLOW_COMMANDS|ALLOW_FOLDERS))\Z"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY", re.I)
_OURS = ("WARPBOARD_BROKER", "WARPBOARD_BROKER_FILE", "WARPBOARD_TOKEN_FILE")


def job_environment(source: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables of this process that a job's programs see.

    In a worker: those on a list, without names that sound like secrets, and those that the operator
    adds. Outside one, in the user's own shell: all but what leads to the queue and the dashboard.
    """
    env = dict(os.environ if source is None else source)
    if SETTINGS not in env:
        return {k: v for k, v in env.items() if not k.startswith(_OURS)}
    more = {name.strip() for name in env.get(PASS_VARIABLE, "").split(",") if name.strip()}
    more -= {SETTINGS, *_OURS}
    return {
        name: value
        for name, value in env.items()
        if name in more or (_ALLOWED.match(name) and not _SECRET.search(name))
    }
