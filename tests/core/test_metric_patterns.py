"""Any pattern is taken, or refused in one line."""

import pytest

from core.errors import UserError
from core.metric_patterns import metric_pattern


@pytest.mark.parametrize(
    "text",
    [
        "(a{0,99999999999})",
        "(?:" * 500 + "(a)" + ")" * 500,
        "(" * 3000,
        "(a)|" * 100_000,
        "x" * 1_000_000 + "(a)",
        "(a)(b)" * 40,
        "(a)[",
    ],
    ids=range(7),
)
def test_a_pattern_that_cannot_be_is_refused_in_a_short_line(text: str) -> None:
    with pytest.raises(UserError, match="metric") as refused:
        metric_pattern(text)
    assert len(str(refused.value)) < 600
