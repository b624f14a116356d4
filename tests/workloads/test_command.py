"""Which programs of their own users may run on a host, by what its operator allows."""

import json
import os
import shutil
import sys

import pytest

from core.errors import UserError
from workloads.allowed import allowed_program
from workloads.registry import parse_params


@pytest.fixture
def allow(monkeypatch):
    def set_list(text):
        monkeypatch.setenv("WARPBOARD_ALLOW_COMMANDS", text)

    return set_list


def test_own_programs_are_off_until_the_operator_names_one(monkeypatch):
    monkeypatch.delenv("WARPBOARD_ALLOW_COMMANDS", raising=False)

    with pytest.raises(UserError, match="WARPBOARD_ALLOW_COMMANDS"):
        allowed_program(["/bin/ls"])


def test_link_to_an_allowed_name_is_judged_by_where_it_leads(allow, tmp_path):
    link = tmp_path / "true"
    link.symlink_to(shutil.which("ls"))
    allow(shutil.which("true"))

    with pytest.raises(UserError, match=os.path.realpath(shutil.which("ls"))):
        allowed_program([str(link)])


def test_program_in_an_allowed_folder_may_run_with_any_arguments(allow, tmp_path):
    program = tmp_path / "bin" / "solve"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    allow(f"{program.parent}/")

    assert allowed_program([str(program), "--size", "12"]) == str(program)


def test_folder_without_a_slash_at_its_end_allows_nothing_inside_it(allow):
    folder = os.path.dirname(shutil.which("true"))
    allow(folder)

    with pytest.raises(UserError, match="is not in"):
        allowed_program([shutil.which("true")])


def test_interpreter_alone_is_not_enough_since_it_runs_what_its_arguments_say(allow):
    allow(sys.executable)

    with pytest.raises(UserError, match="first argument"):
        allowed_program([sys.executable, "-c", "pass"])


def test_interpreter_runs_only_scripts_of_the_folder_named_behind_it(allow, tmp_path):
    inside, outside = tmp_path / "jobs" / "train.py", tmp_path / "other.py"
    inside.parent.mkdir()
    inside.touch()
    outside.touch()
    (inside.parent / "link.py").symlink_to(outside)
    allow(f"{sys.executable} {inside.parent}/")

    assert allowed_program([sys.executable, str(inside), "--lr", "1"])
    for words in (
        [str(outside)],
        [str(inside.parent / "link.py")],
        [f"{inside.parent}/../other.py"],
        ["-c", "pass"],
        ["-i", str(inside)],
        [],
    ):
        with pytest.raises(UserError, match="first argument"):
            allowed_program([sys.executable, *words])


def test_star_allows_every_argument_of_an_interpreter(allow):
    allow(f"/bin/nothing:{sys.executable} *")

    assert allowed_program([sys.executable, "-c", "pass"]) == sys.executable


def test_argv_that_is_no_list_of_texts_is_refused():
    with pytest.raises(UserError, match="argv"):
        parse_params("command", {"argv": json.dumps(["a", 1])})
