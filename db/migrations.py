"""The schema: one decorated function for each change, never edited once released.

All tables are STRICT. Times are ns, sizes bytes, both INTEGER. Everything that belongs to a run
goes with it (ON DELETE CASCADE), so deleting or re-ingesting a run is one statement a table.
"""

import hashlib
import json
import re
import statistics
from pathlib import Path
from typing import Any

from sqlite_utils import Database, Migrations

from captures.identity import device_salt
from captures.private import hashed

migrations = Migrations("warpboard")

_M001 = """
CREATE TABLE sweeps (
  id TEXT PRIMARY KEY, name TEXT, created_at TEXT NOT NULL
) STRICT;
CREATE TABLE gpus (
  id TEXT PRIMARY KEY,            -- worker/uuid, or `import/<model>` for models seen only in files
  worker_id TEXT, model TEXT NOT NULL, uuid TEXT, ordinal INTEGER,
  compute_capability TEXT, num_sms INTEGER, memory_bytes INTEGER, driver TEXT,
  info TEXT NOT NULL DEFAULT '{}', -- JSON: tools, permissions, clocks: the probe's result
  noise_floor_frac REAL, probed_at TEXT
) STRICT;
CREATE TABLE gpu_peaks (
  gpu_id TEXT NOT NULL REFERENCES gpus(id) ON DELETE CASCADE,
  name TEXT NOT NULL,             -- copy_bytes_per_s, gemm_bf16_flops_per_s, launch_ns, ...
  value REAL NOT NULL, unit TEXT NOT NULL, measured_at TEXT NOT NULL, sm_clock_mhz INTEGER,
  PRIMARY KEY (gpu_id, name)
) STRICT;
CREATE TABLE workers (
  id TEXT PRIMARY KEY, version TEXT NOT NULL, queues TEXT NOT NULL, -- JSON list
  info TEXT NOT NULL DEFAULT '{}', started_at TEXT NOT NULL, seen_at TEXT NOT NULL,
  stopped_at TEXT
) STRICT;
CREATE TABLE runs (
  id TEXT PRIMARY KEY,
  sweep_id TEXT REFERENCES sweeps(id),
  name TEXT NOT NULL, source TEXT NOT NULL, -- submitted, imported, demo
  status TEXT NOT NULL, workload TEXT, params TEXT NOT NULL DEFAULT '{}',
  spec TEXT, spec_hash TEXT, comparable_hash TEXT,
  gpu_model TEXT, gpu_id TEXT,
  profilers TEXT NOT NULL DEFAULT '[]', repeats INTEGER NOT NULL DEFAULT 1,
  created_at TEXT NOT NULL, started_at TEXT, finished_at TEXT,
  worker_id TEXT, task_id TEXT, attempt INTEGER NOT NULL DEFAULT 0,
  position REAL NOT NULL DEFAULT 0,     -- order in the queue, smaller first
  cancel_requested INTEGER NOT NULL DEFAULT 0,
  progress TEXT NOT NULL DEFAULT '{}',  -- JSON: pass, stage, done, total
  error TEXT, oom TEXT,                 -- oom: JSON phase, requested_bytes, peak_bytes
  notes TEXT NOT NULL DEFAULT '', content_hash TEXT,
  info TEXT NOT NULL DEFAULT '{}'       -- JSON: cost model, verdict inputs, memory summary
) STRICT;
CREATE INDEX runs_status ON runs(status);
CREATE INDEX runs_created ON runs(created_at);
CREATE INDEX runs_comparable ON runs(comparable_hash, gpu_model);
CREATE UNIQUE INDEX runs_content ON runs(content_hash) WHERE content_hash IS NOT NULL;
CREATE TABLE captures (
  id INTEGER PRIMARY KEY,
  run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  pass TEXT NOT NULL, process INTEGER NOT NULL DEFAULT 0,
  kind TEXT NOT NULL, tool TEXT, tool_version TEXT,
  file_name TEXT NOT NULL, bytes INTEGER NOT NULL, sha256 TEXT NOT NULL,
  spans_path TEXT, num_spans INTEGER,
  private_removed TEXT NOT NULL DEFAULT '[]', -- JSON list of what was taken out
  UNIQUE (run_id, sha256, file_name)
) STRICT;
CREATE TABLE samples (
  run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  pass TEXT NOT NULL, process INTEGER NOT NULL, iteration INTEGER NOT NULL,
  latency_ns INTEGER NOT NULL,
  PRIMARY KEY (run_id, pass, process, iteration)
) STRICT, WITHOUT ROWID;
CREATE TABLE metrics (
  run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  pass TEXT NOT NULL, phase TEXT NOT NULL DEFAULT '', name TEXT NOT NULL,
  value REAL NOT NULL, unit TEXT NOT NULL,
  PRIMARY KEY (run_id, pass, phase, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX metrics_name ON metrics(name);
CREATE TABLE kernel_names (
  name TEXT PRIMARY KEY, short_name TEXT NOT NULL, category TEXT NOT NULL, origin TEXT NOT NULL,
  confidence REAL NOT NULL, rule TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE kernels (
  run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE,
  pass TEXT NOT NULL, name TEXT NOT NULL REFERENCES kernel_names(name),
  grid TEXT, block TEXT, registers INTEGER, shared_bytes INTEGER,
  count INTEGER NOT NULL, total_ns INTEGER NOT NULL, min_ns INTEGER NOT NULL,
  max_ns INTEGER NOT NULL, is_opaque INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX kernels_run ON kernels(run_id, pass);
CREATE INDEX kernels_name ON kernels(name);
CREATE TABLE phases (
  run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE,
  pass TEXT NOT NULL, path TEXT NOT NULL, process INTEGER NOT NULL, num_ranges INTEGER NOT NULL,
  host_ns INTEGER, projected_ns INTEGER, kernel_ns INTEGER, num_kernels INTEGER NOT NULL,
  attribution TEXT NOT NULL, first_start_ns INTEGER NOT NULL
) STRICT;
CREATE INDEX phases_run ON phases(run_id, pass);
CREATE TABLE api_calls (
  run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE,
  pass TEXT NOT NULL, name TEXT NOT NULL, count INTEGER NOT NULL, total_ns INTEGER NOT NULL,
  min_ns INTEGER, max_ns INTEGER, num_failed INTEGER NOT NULL, is_sync INTEGER NOT NULL
) STRICT;
CREATE INDEX api_calls_run ON api_calls(run_id, pass);
CREATE TABLE transfers (
  run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE,
  pass TEXT NOT NULL, kind TEXT NOT NULL, src TEXT, dst TEXT, count INTEGER NOT NULL,
  bytes INTEGER, total_ns INTEGER NOT NULL
) STRICT;
CREATE INDEX transfers_run ON transfers(run_id, pass);
CREATE TABLE gaps (
  run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE,
  pass TEXT NOT NULL, cause TEXT NOT NULL, count INTEGER NOT NULL, total_ns INTEGER NOT NULL,
  evidence TEXT NOT NULL
) STRICT;
CREATE INDEX gaps_run ON gaps(run_id, pass);
CREATE TABLE memory_points (
  run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE,
  pass TEXT NOT NULL, time_ns INTEGER NOT NULL, device INTEGER NOT NULL,
  allocated_bytes INTEGER NOT NULL, reserved_bytes INTEGER, phase TEXT
) STRICT;
CREATE INDEX memory_points_run ON memory_points(run_id, pass, time_ns);
CREATE TABLE memory_at_peak (
  run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE,
  pass TEXT NOT NULL, device INTEGER NOT NULL, site TEXT NOT NULL, phase TEXT,
  bytes INTEGER NOT NULL, count INTEGER NOT NULL
) STRICT;
CREATE INDEX memory_at_peak_run ON memory_at_peak(run_id, pass);
CREATE TABLE counters (
  run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE,
  launch INTEGER NOT NULL, name TEXT NOT NULL REFERENCES kernel_names(name),
  grid TEXT, block TEXT, registers INTEGER, path TEXT,
  duration_ns REAL, sm_pct REAL, memory_pct REAL, dram_pct REAL, l2_pct REAL,
  occupancy_pct REAL, theoretical_occupancy_pct REAL, waves_per_sm REAL,
  dram_bytes REAL, flops REAL, peak_flops_per_s REAL
) STRICT;
CREATE INDEX counters_run ON counters(run_id);
CREATE TABLE rules (
  run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE,
  launch INTEGER, kernel TEXT NOT NULL, rule TEXT NOT NULL, kind TEXT,
  message TEXT NOT NULL, estimated_speedup_pct REAL
) STRICT;
CREATE INDEX rules_run ON rules(run_id);
CREATE TABLE warnings (
  run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  pass TEXT NOT NULL DEFAULT '', code TEXT NOT NULL, message TEXT NOT NULL
) STRICT;
CREATE INDEX warnings_run ON warnings(run_id);
CREATE TABLE events (
  id INTEGER PRIMARY KEY,
  run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  at TEXT NOT NULL, kind TEXT NOT NULL, -- state, progress, log
  message TEXT NOT NULL
) STRICT;
CREATE INDEX events_run ON events(run_id, id);
CREATE TABLE environments (
  run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (run_id, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE tags (
  run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE, tag TEXT NOT NULL,
  PRIMARY KEY (run_id, tag)
) STRICT, WITHOUT ROWID;
CREATE INDEX tags_tag ON tags(tag);
CREATE TABLE baselines (
  comparable_hash TEXT NOT NULL, gpu_model TEXT NOT NULL,
  run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
  pinned_at TEXT NOT NULL, PRIMARY KEY (comparable_hash, gpu_model)
) STRICT;
"""


@migrations()
def m001_create_all(db: Database) -> None:
    """Create every table of the first release."""
    _run(db, _M001)


_M002 = """
ALTER TABLE runs ADD COLUMN summary TEXT NOT NULL DEFAULT '{}';
ALTER TABLE runs ADD COLUMN latency_ms REAL;
ALTER TABLE runs ADD COLUMN latency_lo_ms REAL;
ALTER TABLE runs ADD COLUMN latency_hi_ms REAL;
ALTER TABLE runs ADD COLUMN num_samples INTEGER;
ALTER TABLE runs ADD COLUMN kernel_time_ns INTEGER;
ALTER TABLE runs ADD COLUMN idle_frac REAL;
ALTER TABLE runs ADD COLUMN gemm_frac REAL;
ALTER TABLE runs ADD COLUMN peak_memory_bytes INTEGER;
CREATE INDEX runs_name ON runs(name);
CREATE INDEX runs_sweep ON runs(sweep_id);
CREATE TABLE worker_tokens (
  token_sha256 TEXT PRIMARY KEY, label TEXT NOT NULL UNIQUE, created_at TEXT NOT NULL
) STRICT
"""


@migrations()
def m002_headline_numbers_and_tokens(db: Database) -> None:
    """Keep each run's headline numbers in its own row, and a token for each worker (hashed)."""
    _run(db, _M002)


@migrations()
def m003_index_capture_ids(db: Database) -> None:
    """Index what a deleted capture takes with it, and keep the hash before private fields went."""
    children = ("kernels", "phases", "api_calls", "transfers", "gaps", "memory_points")
    for table in (*children, "memory_at_peak", "counters", "rules"):
        db.conn.execute(f"CREATE INDEX {table}_capture ON {table}(capture_id)")
    db.conn.execute("ALTER TABLE captures ADD COLUMN source_sha256 TEXT")


@migrations()
def m004_elapsed_cycles_of_launches(db: Database) -> None:
    """Keep the GPU cycles of each profiled launch: they check its duration and clock."""
    db.conn.execute("ALTER TABLE counters ADD COLUMN elapsed_cycles REAL")


@migrations()
def m005_index_queue_order_and_models(db: Database) -> None:
    """Index what each submit looks up and what the GPUs page counts: both read every run."""
    db.conn.execute("CREATE INDEX runs_position ON runs(position)")
    db.conn.execute("CREATE INDEX runs_gpu_model ON runs(gpu_model)")


@migrations()
def m006_device_of_a_waiting_run(db: Database) -> None:
    """Keep which physical GPU (`gpus.id`) a run must be executed on; NULL is any of its model."""
    db.conn.execute("ALTER TABLE runs ADD COLUMN device_id TEXT")


@migrations()
def m007_variation_is_a_fraction(db: Database) -> None:
    """Give `latency_cv` (std / mean) its unit: it was stored as ms."""
    db.conn.execute("UPDATE metrics SET unit = 'fraction' WHERE name = 'latency_cv'")


_ITERATION_OF_M008 = re.compile(r"(?:^|/)(?:iteration|iter|step|ProfilerStep)[ _#]?\d+$", re.I)


@migrations()
def m008_idle_of_the_program_itself(db: Database) -> None:
    """Give stored runs the idle share of their clean pass; the capture's own is kept beside it."""
    rows = db.execute("SELECT id, summary FROM runs WHERE summary LIKE '%idle_frac%'").fetchall()
    for run_id, text in rows:
        summary = json.loads(text)
        profiled = summary.pop("idle_frac")
        summary |= {"profiled_idle_frac": profiled, "idle_frac": profiled}
        summary["idle_source"] = "profiled"
        latency_ms = (summary.get("latency_ms") or {}).get("median")
        times_ns = [
            kernel_ns / num_ranges
            for path, kernel_ns, num_ranges in db.execute(
                "SELECT path, kernel_ns, num_ranges FROM phases WHERE run_id = ? AND kernel_ns > 0"
                " AND pass = (SELECT min(pass) FROM phases WHERE run_id = ?)",
                (run_id, run_id),
            )
            if _ITERATION_OF_M008.search(path)
        ]
        if latency_ms and times_ns:
            kernel_ns = statistics.median(times_ns)
            summary["iteration_kernel_ns"] = round(kernel_ns)
            summary["idle_frac"] = max(0.0, 1 - kernel_ns / (latency_ms * 1e6))
            summary["idle_source"] = "clean"
        db.conn.execute(
            "UPDATE runs SET summary = ?, idle_frac = ? WHERE id = ?",
            (json.dumps(summary), summary["idle_frac"], run_id),
        )
    db.conn.execute("UPDATE metrics SET name = 'profiled_idle_frac' WHERE name = 'idle_frac'")


@migrations()
def m009_a_token_is_one_worker(db: Database) -> None:
    """Keep which worker a token is bound to and when it was used, and each worker's token."""
    db.conn.execute("ALTER TABLE worker_tokens ADD COLUMN last_used_at TEXT")
    db.conn.execute("ALTER TABLE worker_tokens ADD COLUMN worker_id TEXT")
    db.conn.execute("ALTER TABLE workers ADD COLUMN token_label TEXT")
    db.conn.execute("UPDATE workers SET token_label = info ->> '$.token'")
    db.conn.execute(
        "UPDATE worker_tokens SET worker_id = (SELECT id FROM workers w"
        " WHERE w.token_label = worker_tokens.label ORDER BY seen_at DESC LIMIT 1)"
    )


@migrations()
def m010_ranks_of_a_run(db: Database) -> None:
    """Keep what a run's ranks did, as one JSON document (`analysis.ranks`)."""
    db.conn.execute(
        "CREATE TABLE run_ranks (run_id TEXT PRIMARY KEY REFERENCES runs(id) ON DELETE CASCADE,"
        " document TEXT NOT NULL) STRICT"
    )


@migrations()
def m011_steps_operators_and_stacks(db: Database) -> None:
    """Keep a capture's steps, its operators, what its host did in idle time, and time by stack."""
    db.conn.execute("ALTER TABLE captures ADD COLUMN step_facts TEXT NOT NULL DEFAULT '{}'")
    _run(db, _STEP_TABLES)


_STEP_TABLES = """
CREATE TABLE steps (
    capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE,
    process INTEGER NOT NULL, step INTEGER NOT NULL, kind INTEGER NOT NULL,
    start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL,
    gpu_start_ns INTEGER, gpu_end_ns INTEGER,
    num_kernels INTEGER NOT NULL, num_launches INTEGER NOT NULL,
    num_graph_launches INTEGER NOT NULL,
    kernel_ns INTEGER NOT NULL, graph_ns INTEGER NOT NULL, busy_ns INTEGER NOT NULL,
    period_ns INTEGER,
    num_transfers INTEGER NOT NULL, transfer_bytes INTEGER NOT NULL, transfer_ns INTEGER NOT NULL,
    num_allocations INTEGER, allocated_bytes INTEGER, num_api_calls INTEGER, api_ns INTEGER,
    is_regular INTEGER NOT NULL, reason TEXT
) STRICT;
CREATE INDEX steps_capture ON steps (capture_id);
CREATE TABLE step_kernels (
    capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE,
    name TEXT NOT NULL, is_opaque INTEGER NOT NULL, count REAL NOT NULL, total_ns REAL NOT NULL
) STRICT;
CREATE INDEX step_kernels_capture ON step_kernels (capture_id);
CREATE TABLE operators (
    capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE,
    name TEXT NOT NULL, pass TEXT NOT NULL, count INTEGER NOT NULL,
    num_kernels INTEGER NOT NULL, self_num_kernels INTEGER NOT NULL,
    self_kernel_ns INTEGER NOT NULL, total_kernel_ns INTEGER NOT NULL, host_ns INTEGER NOT NULL,
    step_count REAL, step_num_kernels REAL, step_self_kernel_ns REAL, step_total_kernel_ns REAL,
    step_host_ns REAL, flops REAL, shapes TEXT, forward_name TEXT, module TEXT
) STRICT;
CREATE INDEX operators_capture ON operators (capture_id);
CREATE TABLE operator_kernels (
    capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE,
    name TEXT NOT NULL, pass TEXT NOT NULL, kernel TEXT NOT NULL,
    count INTEGER NOT NULL, total_ns INTEGER NOT NULL
) STRICT;
CREATE INDEX operator_kernels_capture ON operator_kernels (capture_id);
CREATE TABLE idle_host (
    capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE,
    "group" TEXT NOT NULL, activity TEXT NOT NULL, call TEXT,
    idle_ns INTEGER NOT NULL, step_idle_ns REAL NOT NULL, idle_frac REAL NOT NULL
) STRICT;
CREATE INDEX idle_host_capture ON idle_host (capture_id);
CREATE TABLE flame (
    capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE,
    metric TEXT NOT NULL, node INTEGER NOT NULL, parent INTEGER,
    name TEXT NOT NULL, kind TEXT NOT NULL, self_ns REAL NOT NULL
) STRICT;
CREATE INDEX flame_capture ON flame (capture_id)
"""


@migrations()
def m012_requested_memory(db: Database) -> None:
    """Keep requested bytes beside allocated bytes: a snapshot has both."""
    db.conn.execute("ALTER TABLE memory_points ADD COLUMN requested_bytes INTEGER")


@migrations()
def m013_metrics_by_process(db: Database) -> None:
    """Keep a program's own numbers by process, and which way is better: they are compared too."""
    db.conn.execute("ALTER TABLE metrics ADD COLUMN better TEXT")
    db.conn.execute("ALTER TABLE metrics ADD COLUMN process_values TEXT")


@migrations()
def m014_roofline_of_operators_and_of_the_l2_cache(db: Database) -> None:
    """Keep what places an operator, and a kernel by its L2 traffic, in a roofline."""
    db.conn.execute("ALTER TABLE operators ADD COLUMN elements REAL")
    for name in ("l2_bytes", "peak_l2_bytes_per_s"):
        db.conn.execute(f"ALTER TABLE counters ADD COLUMN {name} REAL")


@migrations()
def m015_predictions_of_experiments(db: Database) -> None:
    """Keep predictions that were tried, as they were made, and the run that measures each."""
    db.conn.execute(
        "CREATE TABLE predictions ("
        "id INTEGER PRIMARY KEY,"
        " run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,"
        " outcome_run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,"
        " experiment TEXT NOT NULL, kind TEXT NOT NULL, model_version INTEGER NOT NULL,"
        " made_at TEXT NOT NULL, predicted_ns REAL NOT NULL, low_ns REAL NOT NULL,"
        " high_ns REAL NOT NULL) STRICT"
    )
    db.conn.execute("CREATE INDEX predictions_run ON predictions(run_id)")
    db.conn.execute("CREATE INDEX predictions_outcome ON predictions(outcome_run_id)")


@migrations()
def m016_hashed_uuids(db: Database) -> None:
    """Key GPUs known only from files by the installation's hash instead of their UUID."""
    sql = "SELECT id FROM gpus WHERE id LIKE 'import/GPU-%' OR id LIKE 'import/MIG-%'"
    keys = [row[0] for row in db.execute(f"{sql} OR id LIKE 'import/H-%'").fetchall()]
    if not keys:
        return
    place = db.execute("SELECT file FROM pragma_database_list WHERE name = 'main'").fetchone()[0]
    salt = device_salt(Path(place).parent) if place else b""
    db.conn.execute("PRAGMA defer_foreign_keys = ON")
    for key in keys:
        new = hashed(key.removeprefix("import/"), salt)
        if not new:  # the secret cannot be kept: as before
            return
        db.conn.execute(
            "UPDATE gpus SET id = ?, uuid = ? WHERE id = ?", (f"import/{new}", new, key)
        )
        for table in ("gpu_peaks", "runs"):
            db.conn.execute(
                f"UPDATE {table} SET gpu_id = ? WHERE gpu_id = ?", (f"import/{new}", key)
            )


@migrations()
def m017_same_job(db: Database) -> None:
    """Name jobs anew: what only names or bounds an execution no longer makes it another job."""
    rows = db.execute("SELECT id, workload, params FROM runs WHERE workload IS NOT NULL").fetchall()
    db.conn.executemany(
        "UPDATE runs SET comparable_hash = ? WHERE id = ?",
        [(_job_of_m017(workload, json.loads(params)), run_id) for run_id, workload, params in rows],
    )
    pinned = db.execute(
        "SELECT r.comparable_hash, b.gpu_model, b.run_id, b.pinned_at FROM baselines b"
        " JOIN runs r ON r.id = b.run_id ORDER BY b.pinned_at"
    ).fetchall()
    db.conn.execute("DELETE FROM baselines")
    db.conn.executemany("INSERT OR REPLACE INTO baselines VALUES (?, ?, ?, ?)", pinned)


_UNNAMED_IN_M017 = {"seed", "iterations", "warmup", "repeats", "name", "notes", "preset"}
_UNNAMED_IN_M017 |= {"timeout_s", "profiled_ranks", "metrics"}
_LATER_IN_M017: dict[str, Any] = {
    "gpus": 1,
    "straggler_rank": -1,
    "straggler_ms": 0.0,
    "parallel": "none",
}
_LATER_IN_M017 |= {"scaling": "strong"}


def _job_of_m017(workload: str, params: dict[str, Any]) -> str:
    kept = {
        k: v for k, v in params.items() if k not in _UNNAMED_IN_M017 and _LATER_IN_M017.get(k) != v
    }
    text = json.dumps(
        {"workload": workload, "params": kept},
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@migrations()
def m018_counter_details(db: Database) -> None:
    """Keep why warps waited, hit rates and memory traffic of each launch that ncu measured."""
    _run(
        db,
        """
CREATE TABLE counter_details (
    run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE,
    launch INTEGER NOT NULL, "group" TEXT NOT NULL, name TEXT NOT NULL, value REAL NOT NULL,
    unit TEXT NOT NULL
) STRICT;
CREATE INDEX counter_details_run ON counter_details (run_id)
""",
    )


@migrations()
def m019_counter_sources(db: Database) -> None:
    """Keep the instructions at which warps were seen most, of ncu's source page."""
    _run(
        db,
        """
CREATE TABLE counter_sources (
    run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
    capture_id INTEGER NOT NULL REFERENCES captures(id) ON DELETE CASCADE,
    launch INTEGER NOT NULL, kernel TEXT NOT NULL, line INTEGER NOT NULL,
    instruction TEXT NOT NULL, samples REAL NOT NULL, share_frac REAL NOT NULL, executed REAL,
    stall TEXT
) STRICT;
CREATE INDEX counter_sources_run ON counter_sources (run_id)
""",
    )


@migrations()
def m020_launch_shapes_of_a_step(db: Database) -> None:
    """Key the kernels of a step by launch shape, like those of the whole capture."""
    for name in ("grid", "block"):
        db.conn.execute(f"ALTER TABLE step_kernels ADD COLUMN {name} TEXT")


@migrations()
def m021_source_of_the_idle_share(db: Database) -> None:
    """Name what the listed idle share is of; of a capture with steps, list that of the steps."""
    db.conn.execute("ALTER TABLE runs ADD COLUMN idle_source TEXT")
    rows = db.execute("SELECT id, summary FROM runs WHERE summary LIKE '%idle_frac%'").fetchall()
    for run_id, text in rows:
        summary = json.loads(text)
        idle = (summary.get("idle_frac"), summary.get("idle_source") or "profiled")
        facts = _step_facts(db, run_id) if idle[1] != "clean" else {}
        regular = facts.get("count", 0) - facts.get("num_excluded", 0)
        if facts.get("idle_frac") is not None and regular >= 2:
            idle = (facts["idle_frac"], "steps")
        db.conn.execute(
            "UPDATE runs SET idle_frac = ?, idle_source = ? WHERE id = ?", (*idle, run_id)
        )
    db.conn.execute(_GEMM_OF_STEPS)


_GEMM_OF_STEPS = """
UPDATE runs SET gemm_frac = of_steps.share FROM (
    SELECT c.run_id, sum(k.total_ns * (n.category IN ('gemm', 'gemv'))) / sum(k.total_ns) AS share
    FROM captures c JOIN step_kernels k ON k.capture_id = c.id
    JOIN kernel_names n ON n.name = k.name
    WHERE c.id = (SELECT id FROM captures l WHERE l.run_id = c.run_id
                  AND l.step_facts LIKE '%"source"%' ORDER BY l.pass, l.process, l.id LIMIT 1)
    GROUP BY c.run_id
    HAVING sum(k.total_ns) > 0 AND sum(k.total_ns * k.is_opaque) <= 0.5 * sum(k.total_ns)
) AS of_steps WHERE of_steps.run_id = runs.id
"""


def _step_facts(db: Database, run_id: str) -> dict[str, Any]:
    """Return what was found of the steps of a run's leading capture; {} where nothing was."""
    rows = db.execute(
        "SELECT step_facts FROM captures WHERE run_id = ? AND pass IN ('nsys', 'trace')"
        " ORDER BY pass, process, id",
        [run_id],
    ).fetchall()
    known = (json.loads(text) for (text,) in rows)
    return next((facts for facts in known if "source" in facts), {})


@migrations()
def m022_role_of_memory_at_the_peak(db: Database) -> None:
    """Keep what live memory is for: parameters, gradients, state, activations, workspace."""
    db.conn.execute("ALTER TABLE memory_at_peak ADD COLUMN role TEXT")


@migrations()
def m023_kernel_time_of_a_step(db: Database) -> None:
    """List the kernel time of a step: a capture's total depends on how long was recorded."""
    db.conn.execute("ALTER TABLE runs ADD COLUMN step_kernel_ns REAL")
    db.conn.execute(
        "UPDATE runs SET step_kernel_ns = json_extract(summary, '$.iteration_kernel_ns')"
    )


_CONTENT = {
    "runs": "INSERT|DELETE",
    "tags": "INSERT|DELETE|UPDATE",
    "baselines": "INSERT|DELETE|UPDATE",
    "predictions": "INSERT|DELETE|UPDATE",
    "gpus": "INSERT|DELETE|UPDATE",
    "gpu_peaks": "INSERT|DELETE|UPDATE",
}
"""Tables whose rows pages are made of, and the writes that tell so."""
_SAID_OF_A_RUN = (
    "name, source, status, workload, params, gpu_model, gpu_id, profilers, repeats, started_at,"
    " finished_at, error, oom, notes, info, summary, latency_ms, comparable_hash"
)
"""All but how far a run is, its place in the queue and who has it."""
_NEW_CONTENT = "UPDATE changes SET token = random() WHERE what = 'content'"
_OTHER_CLASS = "OLD.category IS NOT NEW.category OR OLD.origin IS NOT NEW.origin"


@migrations()
def m024_what_changed(db: Database) -> None:
    """Tell new content from heartbeats, logs and progress, and keep what studies read of a run.

    Each token is another random number after a write: equal tokens, equal content.
    """
    _run(
        db,
        "CREATE TABLE changes (what TEXT PRIMARY KEY, token INTEGER NOT NULL) STRICT;\n"
        "INSERT INTO changes VALUES ('content', random()), ('classes', random());\n"
        "ALTER TABLE runs ADD COLUMN revision INTEGER NOT NULL DEFAULT 0;\n"
        "CREATE TABLE readings (run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,"
        " what TEXT NOT NULL, made_of TEXT NOT NULL, document TEXT NOT NULL,"
        " PRIMARY KEY (run_id, what)) STRICT, WITHOUT ROWID;\n"
        f"CREATE TRIGGER runs_said AFTER UPDATE OF {_SAID_OF_A_RUN} ON runs BEGIN"
        f" UPDATE runs SET revision = random() WHERE id = NEW.id; {_NEW_CONTENT}; END;\n"
        f"CREATE TRIGGER kernel_names_said AFTER UPDATE ON kernel_names WHEN {_OTHER_CLASS}"
        f" BEGIN UPDATE changes SET token = random(); END;\n"
        + "".join(
            f"CREATE TRIGGER {table}_{write.lower()} AFTER {write} ON {table}"
            f" BEGIN {_NEW_CONTENT}; END;\n"
            for table, writes in _CONTENT.items()
            for write in writes.split("|")
        ),
    )


def _run(db: Database, script: str) -> None:
    """Execute statements one by one: `executescript` would commit the migration's transaction."""
    for statement in script.split(";\n"):
        if statement.strip():
            db.conn.execute(statement)
