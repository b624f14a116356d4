"""What the hooks must not change in a program, and what they must see: real PyTorch, no GPU."""

import functools
import itertools
import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from worker.hooks import warpboard_facts
from worker.hooks.warpboard_pace import MOST_TOGETHER, Pace
from worker.hooks.warpboard_records import (
    CHUNK_BYTES,
    DEVICE_SHIFT,
    GRAD,
    LEFT_OUT,
    PAIRS,
    RAISED,
    RECORD,
)
from worker.profile.latency import step_latency
from worker.profile.records import load_processes
from worker.profile.steps import Steps, find_steps, phase_times

ROOT = Path(__file__).resolve().parents[2]
HOOKS = ROOT / "worker" / "hooks"
PROGRAMS = Path(__file__).parent / "profile_programs"


def run_hooked(folder, *words, path=(), code=0, debug=True, python=sys.executable, **settings):
    """Run a script under the hooks; return (output, processes)."""
    records = folder / "records"
    records.mkdir(exist_ok=True)
    settings = {"pass": "clean", "dir": str(records)} | settings
    env = {
        **os.environ,
        "WARPBOARD_PROFILE": json.dumps(settings),
        "PYTHONPATH": os.pathsep.join([str(HOOKS), *map(str, path)]),
        **({"WARPBOARD_HOOKS_DEBUG": "1"} if debug else {}),
    }
    done = subprocess.run(
        [python, *map(str, words)], env=env, cwd=folder,
        capture_output=True, text=True, timeout=250, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stdout, load_processes(records)


@pytest.fixture
def hooked(tmp_path):
    """Return `run_hooked` with a folder of the test's own."""
    return functools.partial(run_hooked, tmp_path)


@pytest.fixture
def with_torch(hooked, warm_python):
    """Run a script where importing PyTorch is short; return (output, processes)."""
    return functools.partial(hooked, "-c", python=warm_python)


COMPILED = {
    "method": [("inference", 8)],
    "forward": [("inference", 8)],
    "blocks": [("inference", 8)],
    "nested": [("inference", 8)],
    "late": [("inference", 12)],
    "late function": [("inference", 4)],
    "function": [],
    "optimizer": [("inference", 8)],
    "module": [("training", 8)],
}
"""Way to compile -> steps that are seen."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory, warm_python):
    """Return what the compiler counted without the hooks, with them, and what these recorded."""
    folder = tmp_path_factory.mktemp("compiled")
    program = PROGRAMS / "compiled.py"
    bare = subprocess.run(
        [warm_python, str(program), *COMPILED], cwd=folder,
        capture_output=True, text=True, timeout=250, check=True,
    )  # fmt: skip
    output, [process] = run_hooked(folder, program, *COMPILED)
    return json.loads(bare.stdout), json.loads(output), process


@pytest.mark.slow
@pytest.mark.parametrize("how", COMPILED)
def test_compiled_modules_keep_their_graphs_and_their_calls_are_seen(compiled, how):
    bare, seen = (counted[how] for counted in compiled[:2])

    assert (seen["stats"], seen["breaks"]) == (bare["stats"], bare["breaks"])
    assert seen["frames"].get("total", 0) <= bare["frames"].get("total", 0)  # nothing again
    mine = [r for r in compiled[2].records if seen["from_ns"] <= r.start_ns < seen["until_ns"]]
    found = find_steps(replace(compiled[2], records=mine))
    assert [(s.kind, len(s)) for s in found] == COMPILED[how]


def test_program_that_turns_warnings_into_errors_runs_as_without(hooked):
    script = (
        "import warnings; warnings.simplefilter('error')\n"
        "import torch; net = torch.compile(torch.nn.Linear(4, 4), backend='eager')\n"
        "for _ in range(3): net(torch.ones(2, 4))\nprint('done')\n"
    )

    output, _ = hooked("-c", script)

    assert output == "done\n"


def test_sitecustomize_of_the_environment_runs_as_without(hooked, tmp_path):
    own = tmp_path / "theirs"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins; builtins.theirs = __file__\n")

    output, _ = hooked(
        "-c", "import sitecustomize, builtins; print(builtins.theirs, sitecustomize.__file__)",
        path=[own],
    )  # fmt: skip

    assert output.split() == [str(own / "sitecustomize.py")] * 2


def test_child_without_torch_imports_nothing_more_than_the_hooks(hooked):
    script = "import sys; print(sorted(m for m in sys.modules if m.startswith(('torch', 'core'))))"

    output, processes = hooked("-c", script)

    assert output == "[]\n"
    assert processes == []


def test_freed_module_is_freed_at_once(with_torch):
    script = (
        "import torch, weakref, gc; gc.disable()\n"
        "net = torch.nn.Linear(4, 4); gone = weakref.ref(net)\n"
        "for _ in range(6): net(torch.ones(2, 4))\n"
        "del net; print(gone() is None)\n"
    )

    output, _ = with_torch(script)

    assert output == "True\n"


def test_modules_that_are_copied_pickled_or_raise_behave_as_without(with_torch):
    script = (
        "import copy, io, pickle, torch\n"
        "class Net(torch.nn.Linear):\n"
        "    def forward(self, x):\n"
        "        if x.shape[0] == 3: raise KeyError('three')\n"
        "        return super().forward(x)\n"
        "net = Net(4, 4)\n"
        "for n in (1, 2, 3, 2, 3, 2):\n"
        "    try: net(torch.ones(n, 4))\n"
        "    except KeyError as error: print(error)\n"
        "twin = copy.deepcopy(net); twin(torch.ones(2, 4))\n"
        "again = pickle.loads(pickle.dumps(net)); again(torch.ones(2, 4))\n"
        "torch.save(net.state_dict(), io.BytesIO())\n"
        "same = torch.equal(again(torch.ones(1, 4)), net(torch.ones(1, 4)))\n"
        "print(len(net._forward_hooks), same)\n"
    )

    output, processes = with_torch(script)

    assert output == "'three'\n'three'\n0 True\n"
    assert sum(len(p.records) for p in processes) >= 6


def test_hooks_of_all_modules_that_the_program_registers_run_as_without(with_torch):
    script = """
import sys, torch
from torch.nn.modules.module import register_module_forward_pre_hook
seen = []
def see(module, args): seen.append(type(module).__name__)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.handle = torch.nn.Linear(2, 2), None
    def forward(self, x):
        if self.handle is None and registers_inside:
            self.handle = register_module_forward_pre_hook(see)
        return self.inner(x)
registers_inside = sys.argv[1] == "inside"
with torch.no_grad():
    net = Net()
    if sys.argv[1] == "first": net.handle = register_module_forward_pre_hook(see)
    for _ in range(5): net(torch.ones(1, 2))
    if sys.argv[1] == "between": net.handle = register_module_forward_pre_hook(see)
    for _ in range(5): net(torch.ones(1, 2))
    net.handle.remove()
    for _ in range(5): net(torch.ones(1, 2))
print(seen.count("Net"), seen.count("Linear"))
"""
    counts = {"first": "10 10", "between": "5 5", "inside": "9 10"}
    for when, count in counts.items():
        output, processes = with_torch(script, when)
        assert output.split() == count.split()
        [steps] = find_steps(processes[-1])
        assert (steps.title, len(steps)) == ("call of Net", 15)


def test_who_watches_functions_or_traces_a_model_sees_nothing_of_the_hooks(with_torch):
    output, processes = with_torch("""
import torch
names = []
class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        names.append(function.__name__)
        return function(*args, **(kwargs or {}))
class Sub(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        names.append(function.__name__)
        return super().__torch_function__(function, types, args, kwargs or {})
net, x = torch.nn.Linear(2, 2), torch.ones(3, 2)
for _ in range(4):
    with torch.no_grad(): net(x), net(x.as_subclass(Sub)), net(input=x.as_subclass(Sub))
    with Mode(): net(x), net(input=x)
    print(names, str(torch.jit.trace(net, (x,)).inlined_graph).count("numel"))
    names.clear()
""")

    assert output.splitlines() == [f"{['linear'] * 4} 0"] * 4
    # PyTorch checks what it traced by a call without tracing.
    assert Counter(r.size for r in processes[-1].records) == {6: 5 * 4 + 4}


def test_models_are_scripted_as_without_and_frozen_or_quantized_ones_are_seen(
    hooked, tmp_path, warm_python
):
    program = tmp_path / "program.py"  # scripting reads the source
    program.write_text("""
import torch, warnings
warnings.simplefilter("error", torch.jit.TracerWarning)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
    def forward(self, x):
        return torch.relu(self.linear(x))
class Scaled(Net):
    def forward(self, x, scale=1.0): return self.linear(x) * scale
torch.jit.trace(Net(), (torch.ones(2, 4),))
net, scaled = Net().eval(), Scaled()
with torch.no_grad():
    for _ in range(3): net(torch.ones(2, 4)), scaled(torch.ones(2, 4))
    frozen = torch.jit.freeze(torch.jit.script(net))
    try: torch.jit.script(scaled)
    except RuntimeError as error: print("Expected a default value" in str(error))
    small = torch.ao.quantization.quantize_dynamic(Net().eval(), {torch.nn.Linear})
    loss = torch.nn.MSELoss()
    for _ in range(4): loss(frozen(torch.ones(2, 4)), small(torch.ones(2, 4)))
""")
    output, [process] = hooked(program, python=warm_python)

    assert output.split() == ["True"]
    calls = Counter(process.name(r.name) for r in process.records)
    assert calls["Scaled"] == 3
    assert calls["RecursiveScriptModule"] == 4
    assert calls["Net"] == 3 + 4 + 1  # PyTorch checks what it traced by a call
    assert "MSELoss" not in calls


def test_a_model_at_the_place_of_a_freed_one_is_another_and_one_like_it_the_same(with_torch):
    output, [process] = with_torch("""
import torch
places = set()
with torch.no_grad():
    for n in range(40):
        kind, width = ((torch.nn.Linear, 3), (torch.nn.ReLU, 0), (torch.nn.Conv1d, 4))[n % 3]
        net = kind(width, width, *[1][: kind is torch.nn.Conv1d]) if width else kind()
        places.add(id(net))
        for _ in range(3): net(torch.ones(1, width or 3, 3))
        del net
print(len(places))
""")

    assert int(output) < 40
    assert {n: facts["type"] for n, facts in process.names.items()} == {0: "Linear", 1: "Conv1d"}
    counts = {n: sum(r.name == n for r in process.records) for n in process.names}
    assert counts == {0: 3 * 14, 1: 3 * 13}


def test_calls_that_raise_are_written_down_from_the_first_to_the_last(with_torch):
    _, [process] = with_torch("""
import torch
net = torch.nn.Linear(2, 2)
with torch.no_grad():
    for n in range(12):
        try: net(torch.ones(1, 3 if n % 2 else 2))
        except RuntimeError: pass
""")

    assert [bool(r.flags & RAISED) for r in process.records] == [False, True] * 6


def test_training_and_evaluation_are_kept_apart_and_accumulation_is_one_step(with_torch):
    script = (
        "import torch\n"
        "net = torch.nn.Linear(8, 8); opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "for step in range(6):\n"
        "    for micro in range(4): net(torch.ones(2, 8)).sum().backward()\n"
        "    opt.step(); opt.zero_grad()\n"
        "    if step == 3:\n"
        "        with torch.no_grad():\n"
        "            for _ in range(5): net(torch.ones(2, 8))\n"
    )

    _, [process] = with_torch(script)

    training, evaluation = find_steps(process)
    assert (training.kind, len(training)) == ("training", 6)
    assert "4 model calls each" in training.title
    assert [ns is None for ns in training.to_next_ns] == [False] * 3 + [True, False, True]
    assert (evaluation.title, len(evaluation)) == ("evaluation call of Linear", 5)


def test_training_without_a_module_call_goes_from_one_optimizer_step_to_the_next(with_torch):
    script = (
        "import time, torch\n"
        "w = torch.nn.Parameter(torch.ones(4)); opt = torch.optim.SGD([w], lr=0.1)\n"
        "for step in range(6):\n"
        "    time.sleep(0.02); w.square().sum().backward(); opt.step(); opt.zero_grad()\n"
    )

    _, [process] = with_torch(script)

    [training] = find_steps(process)
    assert (training.kind, len(training)) == ("training", 5)
    assert min(training.alone_ns) >= 20_000_000
    assert training.alone_ns[:4] == training.to_next_ns[:4]


@pytest.fixture(scope="module")
def trained(tmp_path_factory, warm_python):
    """Return, for each kind of training loop, the steps that were seen of it."""
    folder, program = tmp_path_factory.mktemp("kinds"), PROGRAMS / "kinds_of_training.py"
    output, processes = run_hooked(folder, program, debug=False, python=warm_python)
    of_pid = {process.facts["pid"]: process for process in processes}
    rows = [line.split() for line in output.splitlines()]
    assert [status for _, _, status in rows] == ["0"] * len(rows)
    return {kind: find_steps(of_pid[int(pid)]) for pid, kind, _ in rows}


@pytest.mark.parametrize(
    ("kind", "num_steps"),
    [
        ("new_optimizer_for_each_fold", 13),
        ("two_optimizers_that_are_kept", 10),
        ("critic_and_generator", 18),
        ("closure", 8),
        ("several_models", 11),
        ("activation_checkpoints", 9),
        ("scaler_that_leaves_steps_out", 12),
    ],
)
def test_training_steps_are_those_that_the_program_makes(trained, kind, num_steps):
    (training,) = trained[kind]

    assert (training.kind, len(training)) == ("training", num_steps)


def test_parts_that_a_checkpoint_calls_again_in_the_backward_pass_are_no_calls_of_the_model(
    trained,
):
    assert trained["activation_checkpoints"][0].title == "training step of Checkpointed"


def test_prefill_and_decode_are_told_apart_by_the_size_of_their_input(with_torch):
    script = (
        "import torch\n"
        "net = torch.nn.Embedding(9, 4)\n"
        "with torch.no_grad():\n"
        "    for _ in range(3):\n"
        "        net(torch.zeros(64, dtype=torch.int64))\n"
        "        for _ in range(10): net(torch.zeros(1, dtype=torch.int64))\n"
    )

    _, [process] = with_torch(script)

    decode, prefill = find_steps(process)
    assert (len(decode), len(prefill)) == (30, 3)
    assert sum(ns is None for ns in decode.to_next_ns) == 3


def test_forked_children_keep_records_of_their_own_and_loader_workers_none(with_torch):
    script = (
        "import os, torch\n"
        "class Data(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 8\n"
        "    def __getitem__(self, i):\n"
        "        with torch.no_grad(): return scale(torch.ones(1, 4))\n"
        "scale = torch.nn.Linear(4, 4); net = torch.nn.Linear(4, 4)\n"
        "for x in torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=1):\n"
        "    net(x)\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    for _ in range(3): net(torch.ones(1, 4))\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
    )

    _, processes = with_torch(script)

    assert sorted(len(p.records) for p in processes) == [3, 4]


def test_calls_that_other_threads_make_are_said_to_be_missing(with_torch):
    _, [process] = with_torch("""
import threading, torch
net = torch.nn.Linear(4, 4)
def infer(count):
    with torch.no_grad():
        for _ in range(count): net(torch.ones(2, 4))
for count in (8, 20):
    thread = threading.Thread(target=infer, args=(count,))
    thread.start()
    thread.join()
    infer(3)
""")

    kinds = find_steps(process)
    options = {"wanted": "step to step", "num_skipped": 0, "num_steps": 0}
    _, warnings = step_latency(kinds, process, **options)
    # An operating system may give the second thread the number of the first.
    missing = process.facts["calls_elsewhere"]
    assert missing in (6, 26) and len(kinds[0]) + missing == 34
    assert [w["code"] for w in warnings if "thread" in w["message"]] == ["calls_elsewhere"]
    assert f"at least {missing}" in str(warnings)


def test_marked_steps_come_before_those_that_are_found(with_torch):
    script = (
        "import torch; from warpboard_marks import phase, step\n"
        "net = torch.nn.Linear(4, 4)\n"
        "@step('request')\n"
        "def serve():\n"
        "    with phase('prefill'): net(torch.ones(2, 4))\n"
        "    net(torch.ones(1, 4))\n"
        "for _ in range(5): serve()\n"
    )

    _, [process] = with_torch(script, path=[ROOT])

    [steps] = find_steps(process)
    assert (steps.kind, len(steps)) == ("marked", 5)
    assert "request" in steps.title


def test_marked_phases_are_timed_in_each_step_and_summed_where_they_recur(hooked):
    script = (
        "import time; from warpboard_marks import phase, step\n"
        "for number in range(6):\n"
        "    with phase('between'): pass\n"
        "    with step():\n"
        "        with phase('prefill'): time.sleep(0.004)\n"
        "        for _ in range(3):\n"
        "            with phase('decode'): time.sleep(0.002)\n"
        "        if number == 3:\n"
        "            with phase('save'): time.sleep(0.001)\n"
    )

    _, [process] = hooked("-c", script, path=[ROOT])

    [steps] = find_steps(process)
    times = phase_times(process, steps, 1, None)
    assert {name: len(values) for name, values in times.items()} == {
        "prefill": 5, "decode": 5, "save": 1, "between": 4,
    }  # fmt: skip
    # Sleeping never ends early: these are exact from below.
    assert min(times["prefill"]) >= 4_000_000
    assert min(times["decode"]) >= 6_000_000
    for number, alone in enumerate(steps.alone_ns[1:]):
        assert times["prefill"][number] + times["decode"][number] <= alone


@pytest.mark.parametrize(
    ("kind", "passes", "together"),
    [("inference", 1, 4), ("training", 1, 4), ("training", 4, 4), ("inference", 1, 16)],
)
def test_short_steps_in_a_row_cost_an_event_each_group_and_their_times_are_those_of_the_group(
    with_torch, kind, passes, together
):
    script = (PROGRAMS / "counted_cuda.py").read_text()
    output, [process] = with_torch(script, kind, passes, together)
    counted = json.loads(output)

    # Of 200: 44 of the first 64, which are single, and the groups; every second has an end.
    num_groups = 156 / together
    assert 0.22 <= counted["record"] - 1.5 * num_groups / 200 < 0.45
    assert counted["elapsed"] == counted["record"]
    assert counted["query"] < 0.1
    assert set(counted) <= {"record", "elapsed", "query", "new"}
    assert counted.get("new", 0) < 0.4
    assert process.facts["memory"] == {
        "peak_allocated_bytes": 5, "peak_reserved_bytes": 7, "num_alloc_retries": 2,
    }  # fmt: skip
    steps = find_steps(process)[0]
    assert steps.kind == kind and steps.on_gpu
    # The first passes come before it is known that an optimizer follows.
    assert len(steps) >= 218
    assert all(ns is None or ns > 0 for ns in steps.alone_ns)
    assert (
        20 + num_groups / 2 <= sum(ns is not None for ns in steps.alone_ns) <= 50 + num_groups / 2
    )
    assert steps.num_left_out == pytest.approx(156 * (1 - 1 / together), abs=together)
    first = [i for i, ns in enumerate(steps.to_next_ns) if ns is not None]
    sizes = [after - i for i, after in itertools.pairwise(first)]
    assert set(sizes) == {1, together}
    summed = [steps.to_next_ns[i] * size for i, size in zip(first, sizes, strict=False)]
    # The stand-in's events tell the host's time.
    whole = steps.starts_ns[first[-1]] - steps.starts_ns[first[0]]
    assert sum(summed) == pytest.approx(whole, abs=5_000)


@pytest.mark.parametrize(
    ("kind", "passes", "python", "c"), [("inference", 1, 2, 6), ("training", 1, 2, 3)]
)
def test_most_short_steps_make_the_hooks_call_next_to_nothing(with_torch, kind, passes, python, c):
    script = (PROGRAMS / "counted_cuda.py").read_text()
    output, _ = with_torch(script, kind, passes, 16, "calls")

    (python_calls, c_calls), num_steps = json.loads(output)
    assert (python_calls, c_calls) <= (python, c)
    assert num_steps > 130


def timed_of(pace, num_steps, step_us, kind_of=lambda n: "kind"):
    """Return which of so many steps have an event."""
    return [n for n in range(num_steps) if pace.wants_event(kind_of(n), n * step_us * 1000)]


@pytest.mark.slow
def test_what_is_compiled_amid_counted_steps_has_the_graphs_that_it_has_without(with_torch):
    script = (PROGRAMS / "counted_cuda.py").read_text()
    counted, _ = with_torch(script, "training", 1, 64, "compiles")
    timed, _ = with_torch(script, "training", 1, 1, "compiles")

    counted, timed = (list(map(json.loads, text.splitlines())) for text in (counted, timed))
    assert [was_counting for was_counting, _ in counted] == [True] * 3
    assert [graphs for _, graphs in counted] == [graphs for _, graphs in timed]


@pytest.mark.parametrize(
    ("step_us", "size"),
    [(100, 64), (490, 64), (600, 64), (1010, 32), (3900, 16), (7900, 8), (8100, 1)],
)
def test_groups_of_short_steps_grow_until_they_last_some_thirty_milliseconds(step_us, size):
    timed = timed_of(Pace(MOST_TOGETHER, is_training=False), 4000, step_us)
    sizes = [b - a for a, b in itertools.pairwise(timed)]

    assert sizes[:64] == [1] * 64
    assert sizes[66:] == sorted(sizes[66:])
    assert set(sizes[-20:]) == {size}
    # A short run has samples too: none holds more than a tenth of the steps before it.
    assert all(many == 1 or 10 * many <= at for at, many in zip(timed, sizes, strict=False))


@pytest.mark.parametrize(
    ("row", "most_events"), [(3, 20_000), (11, 11_000), (50, 5_000), (100, 3_000), (1000, 1_600)]
)
def test_groups_are_no_longer_than_rows_of_like_steps_allow(row, most_events):
    timed = timed_of(
        Pace(MOST_TOGETHER, is_training=False), 20_000, 500,
        lambda n: "evaluation" if n % row == 0 else "training",
    )  # fmt: skip
    known = sum(b - a for a, b in itertools.pairwise(timed) if a // row == (b - 1) // row)
    without_groups = 20_000 * (row - 1) / row

    assert known > 0.85 * without_groups
    assert len(timed) <= most_events


def test_a_long_step_ends_a_group_and_another_kind_begins_none():
    pace = Pace(16, is_training=False)
    for n in range(200):
        pace.wants_event("decode", n * 500_000)
    pace.wants_event("prefill", 100_000_000)
    assert [pace.wants_event("decode", 100_500_000 + n * 500_000) for n in range(3)] == [
        True
    ] * 2 + [False]
    assert pace.wants_event("decode", 110_000_000)


def test_samples_of_steps_in_groups_all_stand_for_as_many_steps():
    ms = 1_000_000
    steps = Steps("inference", "call")
    for sizes, ns in (([1] * 64, 3 * ms), ([4] * 50, ms), ([8] * 20, 2 * ms)):
        for size in sizes:
            steps.to_next_ns += [ns] + [None] * (size - 1)
            steps.num_together += [size] + [1] * (size - 1)
    samples, size = steps.to_next_samples(0, None)

    assert size == 8
    assert samples == [3 * ms] * 8 + [ms] * 25 + [2 * ms] * 20
    few = Steps(
        "inference", "call", to_next_ns=[ms] * 99 + [5 * ms, None], num_together=[1] * 99 + [2, 1]
    )
    assert few.to_next_samples(0, None) == ([ms] * 99 + [5 * ms], 1)


def test_where_the_driver_makes_no_event_pytorch_s_own_are_taken(with_torch):
    output, _ = with_torch("""
import torch, warpboard_session
events = warpboard_session.sibling("warpboard_events")
torch.version.cuda = "13.0"
class Driver:
    def __init__(self, library): self.library = library
    def new(self):
        if self.library != "libcuda.so.1" or refuses: raise OSError("cuEventCreate failed")
events.DriverEvents = Driver
for refuses in (False, True):
    print(type(events.make_events(torch).api).__name__)
""")

    assert output.split() == ["Driver", "TorchEvents"]


def test_steps_of_another_kind_are_in_no_group(with_torch):
    script = (PROGRAMS / "counted_cuda.py").read_text()
    _, [process] = with_torch(script, "prefill and decode", 1, 4)

    decode, prefill = find_steps(process)

    assert (len(prefill), prefill.num_left_out) == (20, 0)
    assert decode.num_left_out > 50
    following = {start: ns for start, ns in zip(decode.starts_ns, decode.to_next_ns, strict=True)}
    last_before = [max(s for s in decode.starts_ns if s < p) for p in prefill.starts_ns[1:]]
    assert [following[start] for start in last_before] == [None] * 19


def test_steps_that_only_the_host_has_soon_done_with_are_in_no_groups(with_torch):
    script = (PROGRAMS / "counted_cuda.py").read_text()
    _, [process] = with_torch(script, "inference", 1, 16, "behind")

    # What the GPU needs is known once events are read: here after each 20 steps.
    assert find_steps(process)[0].num_left_out == 0


COUNTED = [
    *(f"{optimizer}:" for optimizer in ("looped", "foreach", "fused", "momentum")),
    "foreach:edits data", "foreach:edits after", "foreach:averages", "foreach:parallel",
    "foreach:leaves out", "foreach:skips", "foreach:restores", "foreach:gathers",
    "foreach:at times twice", "fused:edits before",
]  # fmt: skip
NOT_COUNTED = [
    "foreach:twice", "foreach:both", "foreach:late",
    "without state:restores", "fused without state:edits before", "unseen:edits before",
]  # fmt: skip


@pytest.mark.parametrize("kind", COUNTED + NOT_COUNTED)
def test_training_steps_are_as_many_whether_each_is_timed_or_most_are_counted(
    tmp_path, warm_python, kind
):
    script = (PROGRAMS / "counted_cuda.py").read_text()
    found = []
    for together in (1, 16):
        folder = tmp_path / str(together)
        folder.mkdir()
        _, [counted] = run_hooked(folder, "-c", script, kind, 1, together, python=warm_python)
        found.append(find_steps(counted)[0])

    each, most = found
    assert (each.kind, each.num_left_out) == ("training", 0)
    assert (most.kind, len(most)) == ("training", len(each))
    # Steps that are only counted have one time for a call and the optimizer's step after it.
    pairs = itertools.pairwise(counted.records)
    assert any(a.start_ns == b.start_ns for a, b in pairs) == (kind in COUNTED)


@pytest.mark.parametrize("settings", [{"alone": True}, {"steps": 30, "skip": 100}])
def test_few_steps_that_are_asked_for_and_ends_that_are_wanted_are_timed_one_by_one(
    with_torch, settings
):
    script = (PROGRAMS / "counted_cuda.py").read_text()
    _, [process] = with_torch(script, "inference", 1, 1, **settings)

    [steps] = find_steps(process)
    assert (len(steps), steps.num_left_out) == (220, 0)
    assert sum(ns is None for ns in steps.to_next_ns) == 1


@pytest.mark.parametrize(("variable", "by"), [("3", ", by OMP_NUM_THREADS"), ("1", "")])
def test_a_run_on_a_cpu_says_how_many_cores_were_used_and_whether_a_variable_says_so(
    with_torch, monkeypatch, variable, by
):
    monkeypatch.setenv("OMP_NUM_THREADS", variable)
    _, [process] = with_torch("""
import torch
net = torch.nn.Linear(4, 4)
net(torch.ones(1, 4))
torch.set_num_threads(3)
""")

    text = process.facts["environment"]["threads"]
    assert re.fullmatch(rf"3 of [1-9]\d* cores{by}", text)
    assert process.facts["environment"]["torch"]


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", 2), ("50000 100000", 1), ("150000 100000", 2), (None, 2)]
)
def test_two_threads_of_a_core_count_once_and_a_quota_counts(monkeypatch, tmp_path, quota, cores):
    for cpu, siblings in enumerate(["0-1", "0-1", "2-3", "2-3"]):
        topology = tmp_path / f"devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{siblings}\n")
    if quota is not None:
        (tmp_path / "fs/cgroup").mkdir(parents=True)
        (tmp_path / "fs/cgroup/cpu.max").write_text(f"{quota}\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})

    assert warpboard_facts.usable_cores(str(tmp_path)) == cores


@pytest.mark.parametrize("kind", ["training", "inference"])
@pytest.mark.parametrize("seed", [1, 2])
def test_short_steps_among_others_are_all_counted_and_the_times_of_groups_are_theirs(
    with_torch, kind, seed
):
    output, [process] = with_torch((PROGRAMS / "mixed_steps.py").read_text(), seed, kind)
    done = json.loads(output)
    steps = find_steps(process)[0]
    if kind == "training":
        own = [i for i, (what, _, _) in enumerate(done) if what == "train"]
        part_of_steps = {"train", "extra", "failed", "edited"}
    else:
        part_of_steps = {"Net", "Ema"}
        # A call that raised had an input of another size.
        assert steps.title == "call of Net with 8 elements"
        sizes = [r.size for r in process.records if process.name(r.name) == "Net"]
        nets = [i for i, (what, _, _) in enumerate(done) if what in ("Net", "failed")]
        own = [i for i, size in zip(nets, sizes, strict=True) if size == 8]

    assert len(steps) == len(own)
    assert steps.num_left_out > 0.3 * len(own)
    began_ns = [done[i][2] for i in own]
    # The first calls come before it is known that an optimizer follows.
    timed = [at for at in range(3, len(own) - 1) if steps.to_next_ns[at] is not None]
    ends = [at + steps.num_together[at] for at in timed]
    between = {
        what for a, b in zip(timed, ends, strict=True) for what, _, _ in done[own[a] : own[b]]
    }
    assert between <= part_of_steps
    assert sum(steps.num_together[at] for at in timed) > 0.8 * len(own)
    # A call that no step of the optimizer follows is a part of the next training step.
    are_first = [kind != "training" or done[i - 1][0] not in ("extra", "failed") for i in own]
    plain = [(a, b) for a, b in zip(timed, ends, strict=True) if are_first[a] and are_first[b]]
    assert len(plain) > 0.8 * len(timed)
    for a, b in plain:
        assert abs(steps.to_next_ns[a] * (b - a) - (began_ns[b] - began_ns[a])) < 5_000


def test_a_record_of_counted_steps_holds_no_more_than_a_group_has(tmp_path):
    (tmp_path / "process-1-1.jsonl").write_text('{"name": 0, "type": "Net", "parameters": 1}\n')
    nan = float("nan")
    rows = [
        (1, LEFT_OUT | GRAD | PAIRS, 0, 3 << DEVICE_SHIFT, 7, 100, 400, nan, nan),
        (1, LEFT_OUT, 0, (2**24 - 1) << DEVICE_SHIFT, 5, 100, 400, nan, nan),
    ]
    data = b"".join(RECORD.pack(*row) for row in rows)
    (tmp_path / "process-1-1.bin").write_bytes(data.ljust(CHUNK_BYTES, b"\0"))

    [process] = load_processes(tmp_path)
    pairs, capped = process.records[:6], process.records[6:]
    assert [(r.kind, r.name, r.flags, r.start_ns) for r in pairs] == [
        (1, 0, LEFT_OUT | GRAD, 200), (2, 7, 0, 200), (1, 0, LEFT_OUT | GRAD, 300), (2, 7, 0, 300),
        (1, 0, LEFT_OUT | GRAD, 400), (2, 7, 0, 400),
    ]  # fmt: skip
    assert [r.size for r in capped] == [5] * MOST_TOGETHER


@pytest.mark.parametrize("how", ["goes on", "dies", "forks", "never"])
def test_the_first_of_several_captured_processes_waits_for_the_others_but_not_for_ever(
    tmp_path, how
):
    script = """
import os, signal, sys, time
import warpboard_session
captures = warpboard_session.sibling("warpboard_captures")
how, folder = sys.argv[1:]
captures.MAX_WAIT_S = 0.1 if how == "never" else 100.0
ready, begun = os.pipe()
told, tell = os.pipe()
other = os.fork()
if not other:
    turn = captures.Turn(folder)
    if how == "forks" and not os.fork():
        signal.pause()
    os.write(begun, b"%d" % os.getpid())
    os.read(told, 1)
    time.sleep(0.2)
    print("other", flush=True)
    if how == "dies": os.kill(os.getpid(), signal.SIGKILL)
    if how == "never": signal.pause()
    turn.wait()
    os._exit(0)
os.read(ready, 9)
turn = captures.Turn(folder)
os.write(tell, b"x")
turn.wait()
print("first", flush=True)
os.killpg(0, signal.SIGKILL)
"""
    records = tmp_path / "records"
    records.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", script, how, str(records)],
        env={**os.environ, "PYTHONPATH": str(HOOKS)},
        capture_output=True, text=True, timeout=60, check=False, start_new_session=True,
    )  # fmt: skip

    words = done.stdout.split()
    assert "first" in words, done.stderr
    assert how == "never" or words == ["other", "first"]
