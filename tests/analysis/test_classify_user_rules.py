"""The user's own rules: precedence, and one clear line for each mistake."""

import pytest

from analysis.classify import Category, Origin, classify, load_user_rules
from core.errors import UserError


def load(tmp_path, text):
    path = tmp_path / "rules.toml"
    path.write_text(text, encoding="utf-8")
    return load_user_rules(path)


def test_an_absent_file_has_no_rules(tmp_path):
    assert load_user_rules(tmp_path / "rules.toml") == ()


def test_a_user_rule_wins_and_the_first_one_decides(tmp_path):
    rules = load(
        tmp_path,
        '[[rule]]\nmatch = "^nvjet_.*TNT$"\ncategory = "other"\norigin = "user"\n'
        '[[rule]]\ncontains = "nvjet"\ncategory = "moe"\n',
    )
    found = classify("nvjet_tst_1x1_TNT", user_rules=rules)
    assert (found.category, found.origin) == (Category.OTHER, Origin.USER)
    assert found.rule == "user.1 / user.1"
    second = classify("nvjet_tst_1x1_NNN", user_rules=rules)
    assert (second.category, second.origin) == (Category.MOE, Origin.CUBLAS)


def test_contains_is_plain_text(tmp_path):
    rules = load(tmp_path, '[[rule]]\ncontains = "a.b"\ncategory = "copy"\n')
    assert classify("zzz_axb", user_rules=rules).category == Category.UNKNOWN
    assert classify("zzz_a.b", user_rules=rules).category == Category.COPY


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[rule]]\nmatch = "("\ncategory = "gemm"', "rule 1: match is not a regular expression"),
        ('[[rule]]\nmatch = "(a+)+$"\ncategory = "gemm"', "rule 1: match repeats a group"),
        ('[[rule]]\nmatch = "a"\ncategory = "matmul"', "rule 1: category 'matmul' is not one of"),
        ('[[rule]]\nmatch = "a"\norigin = "me"', "rule 1: origin 'me' is not one of cublas"),
        ('[[rule]]\nmatch = "a"', "rule 1: give category, origin or both"),
        ('[[rule]]\nmatch = "a"\ncontains = "b"\ncategory = "gemm"', "rule 1: give match"),
        ('[[rule]]\nmatch = 3\ncategory = "gemm"', "rule 1: match must be a text"),
        ('[[rule]]\nmatch = "a"\nkind = "b"', "rule 1: 'kind' is not one of"),
        ('[[rule]]\nmatch = ""\ncategory = "gemm"', "rule 1: match must be a text"),
        ('rule = 3', "`rule` is not a list"),
        ('[[rules]]\nmatch = "a"', "unknown key 'rules'"),
        ("[[rule", "not valid TOML"),
    ],
)  # fmt: skip
def test_a_wrong_rule_is_named_with_file_number_and_field(tmp_path, text, says):
    with pytest.raises(UserError) as caught:
        load(tmp_path, text)
    assert str(caught.value).startswith("rules.toml: ")
    assert says in str(caught.value)
