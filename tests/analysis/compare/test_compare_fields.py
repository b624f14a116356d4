"""What differs, and whether a ratio still means something."""

from analysis.compare.fields import (
    find_differences,
    intended_variable,
    is_comparable,
    make_banner,
)
from analysis.compare.metrics import Metric
from tests.analysis.compare.views import build_view

LATENCY = Metric(name="latency", unit="ms")
KERNEL_TIME = Metric(name="kernel_time", unit="ms")
PARAMS = {"compile": "none", "context": 512, "dtype": "bf16"}


def differences(a: dict[str, object], b: dict[str, object], metric: Metric = LATENCY):
    base = {"params": PARAMS}
    return find_differences([build_view(**(base | a))], [build_view(**(base | b))], metric)


def test_equal_runs_differ_in_nothing() -> None:
    found = differences({}, {})

    assert found == ()
    assert is_comparable(found)
    assert make_banner(found) is None


def test_compile_alone_is_the_intended_variable() -> None:
    found = differences({}, {"params": PARAMS | {"compile": "max-autotune"}})

    variable = intended_variable(found)
    assert is_comparable(found)
    assert variable is not None
    assert (variable.field, variable.a, variable.b) == ("compile", "none", "max-autotune")
    assert "compile none -> max-autotune" in (make_banner(found) or "")


def test_a_setting_of_the_environment_is_the_intended_variable() -> None:
    own = {"argv": '["prog"]'}
    with_it = own | {"settings": "NVIDIA_TF32_OVERRIDE=1"}

    variable = intended_variable(differences({"params": own}, {"params": with_it}))

    assert variable is not None
    assert (variable.field, variable.a, variable.b) == (
        "settings", "none", "NVIDIA_TF32_OVERRIDE=1",
    )  # fmt: skip


def test_a_programs_arguments_are_shown_as_a_shell_takes_them() -> None:
    a = {"argv": '["python3", "train.py", "--name", "two words"]'}
    b = {"argv": '["python3", "train.py"]'}

    variable = intended_variable(differences({"params": a}, {"params": b}))

    assert variable is not None
    assert (variable.a, variable.b) == (
        "python3 train.py --name 'two words'", "python3 train.py",
    )  # fmt: skip


def test_the_gpu_alone_is_the_intended_variable_with_its_driver_and_clocks() -> None:
    here = {"gpu_model": "A", "environment": {"driver": "1", "clock_lock": "1980"}}
    there = {"gpu_model": "B", "environment": {"driver": "2", "clock_lock": "unavailable"}}

    found = differences(here, there)

    assert is_comparable(found)
    assert {d.field: d.effect for d in found} == {
        "gpu": "intended",
        "environment.driver": "noted",
        "environment.clock_lock": "noted",
    }


def test_sizes_and_dtype_break_the_ratio() -> None:
    for name, value in {"context": 1024, "dtype": "fp32"}.items():
        found = differences({}, {"params": PARAMS | {name: value}})

        assert not is_comparable(found)
        assert found[0].field == name
        assert "Not comparable" in (make_banner(found) or "")


def test_another_workload_breaks_the_ratio() -> None:
    assert not is_comparable(differences({}, {"workload": "transformer"}))


def test_clock_limits_break_the_ratio_on_one_gpu() -> None:
    found = differences(
        {"environment": {"clock_lock": "1980"}}, {"environment": {"clock_lock": "no"}}
    )

    assert not is_comparable(found)


def test_compile_mixed_with_another_variable_is_not_comparable() -> None:
    found = differences({}, {"params": PARAMS | {"compile": "default"}, "gpu_model": "B"})

    assert not is_comparable(found)
    assert intended_variable(found) is None
    assert "several variables" in (make_banner(found) or "")


def test_the_sides_of_a_tile_are_one_variable() -> None:
    small, large = ({"params": {"tile_m": n, "tile_n": n, "preset": f"t{n}"}} for n in (64, 128))

    found = differences(small, large)
    variable = intended_variable(found)

    assert is_comparable(found)
    assert variable is not None
    assert (variable.field, variable.a) == ("tile", "tile_m 64, tile_n 64")


def test_another_torch_is_noted_and_comparable() -> None:
    found = differences({"environment": {"torch": "2.10"}}, {"environment": {"torch": "2.11"}})

    assert is_comparable(found)
    assert "environment.torch 2.10 -> 2.11" in (make_banner(found) or "")


def test_facts_of_one_execution_or_place_are_no_differences() -> None:
    names = (
        *("session_start_utc_ns", "hostname", "devices", "report_path", "user", "pid", "cwd"),
        "distributed.rank",
    )
    here, there = ({"environment": dict.fromkeys(names, value)} for value in ("x", "y"))

    assert differences(here, there) == ()


def test_tool_settings_break_times_under_the_tool_only() -> None:
    here, there = {"primary_pass": "nsys"}, {"primary_pass": "trace"}

    assert is_comparable(differences(here, there, LATENCY))
    assert not is_comparable(differences(here, there, KERNEL_TIME))


def test_a_side_of_mixed_sizes_is_not_comparable_even_with_itself() -> None:
    mixed = [build_view(params=PARAMS), build_view(params=PARAMS | {"context": 1024})]

    found = find_differences(mixed, mixed, LATENCY)

    assert not is_comparable(found)
    assert found[0].a == "1024 | 512"


def test_a_size_known_on_one_side_only_is_said_to_be_unknown() -> None:
    found = differences({"params": {}}, {})

    assert {d.field: d.effect for d in found} == {
        "compile": "intended",
        "context": "unknown",
        "dtype": "unknown",
    }


def test_many_fields_of_one_prefix_are_one_name_in_the_banner() -> None:
    settings = {f"allocator.{n}": n for n in range(9)} | {"tuned.x": 1, "tuned.y": 2}

    banner = make_banner(differences({}, {"environment": settings}))

    told = "environment.allocator (9 fields), environment.tuned.x, environment.tuned.y"
    assert banner == f"Known on one side only: {told}."
