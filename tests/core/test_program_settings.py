"""Settings of a program's environment: which may be set, to what, and how a job writes them."""

import pytest

from core.errors import UserError
from core.program_settings import (
    PATTERNS,
    parse_settings,
    settings_in,
    settings_text,
    with_settings,
)


@pytest.mark.parametrize(
    "text",
    [
        "LD_PRELOAD=/tmp/x.so",
        "PATH=/tmp",
        "PYTHONPATH=/tmp",
        "nvidia_tf32_override=1",
        "CUDA_VISIBLE_DEVICES=0",
        "CUDA_MODULE_LOADING",
        "CUDA_MODULE_LOADING=EAGER\nLD_PRELOAD=x",
        "CUDA_MODULE_LOADING=eager",
        "NVIDIA_TF32_OVERRIDE=1;id",
        "NVIDIA_TF32_OVERRIDE=\u0661",  # a digit, and not of ASCII
        "NVIDIA_TF32_OVERRIDE=1 NVIDIA_TF32_OVERRIDE=0",
        "CUBLAS_WORKSPACE_CONFIG=:4096",
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,",
        "PYTORCH_ALLOC_CONF=backend:/tmp/x.so",
        '{"LD_PRELOAD": "x"}',
        '{"NVIDIA_TF32_OVERRIDE": 1}',
        '{"NVIDIA_TF32_OVERRIDE": "1"',
    ],
)
def test_a_name_or_a_value_that_is_not_on_the_list_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"^settings: "):
        parse_settings(text)


def test_no_name_that_says_what_is_loaded_or_where_is_on_the_list() -> None:
    assert not [n for n in PATTERNS if n.startswith(("LD_", "PYTHON")) or "PATH" in n]


def test_settings_are_written_in_one_way_and_read_back_alike() -> None:
    wanted = {
        "NVIDIA_TF32_OVERRIDE": "0",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:2:16:8",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:128",
    }
    text = settings_text(wanted)

    assert text == settings_text(dict(reversed(wanted.items())))
    assert parse_settings(text) == wanted
    assert settings_text(parse_settings("  ")) == settings_text({}) == "none"
    assert parse_settings("none") == {}


def test_of_an_environment_only_what_may_be_set_is_taken() -> None:
    environment = {"CUDA_MODULE_LOADING": "EAGER", "NVIDIA_TF32_OVERRIDE": "yes", "PATH": "/bin"}

    assert settings_in(environment) == {"CUDA_MODULE_LOADING": "EAGER"}


def test_an_option_of_the_allocator_is_added_to_those_that_are_set() -> None:
    now = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False,max_split_size_mb:128"

    changed = with_settings(now, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"})

    assert changed == "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:128"
    assert with_settings("NVIDIA_TF32_OVERRIDE=0", {"NVIDIA_TF32_OVERRIDE": "1"}) == (
        "NVIDIA_TF32_OVERRIDE=1"
    )
