"""Names of the jobs of a sweep."""

from app.submit import submit_jobs
from core.config import DataDir
from core.spec import JobSpec
from db.connection import opened
from db.runs import list_rows
from workloads.registry import parse_params


def test_jobs_of_a_sweep_without_a_name_are_told_apart_by_what_varies(data_dir: DataDir) -> None:
    given = [{"preset": "tiny", "implementation": "sdpa", "backend": b} for b in ("math", "flash")]
    jobs = [
        JobSpec(
            workload="attention",
            params=parse_params("attention", values, gpu_is_cpu=True),
        )
        for values in given
    ]
    with opened(data_dir.db_path) as db:
        submit_jobs(db, data_dir, jobs)
        names = [str(row["name"]) for row in list_rows(db)]
    assert [sum(f"backend={b}" in name for name in names) for b in ("math", "flash")] == [1, 1]
    assert all(name.startswith("attention preset=tiny") for name in names)
