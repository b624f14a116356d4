"""Many lines of a study stand in groups: what is compared with all else equal."""

from analysis.studies.engine.drawn import grouped_lines


def line(
    model: str, batch: str, dtype: str = "fp16", source: str = "measured"
) -> dict[str, object]:
    provenance = "measured" if source == "measured" else "published"
    return {
        "model": model,
        "batch": batch,
        "dtype": dtype,
        "from": source,
        "provenance": provenance,
        "series": f"{model}, {dtype}, batch {batch}, {source}",
    }


def test_lines_that_differ_in_the_compared_field_alone_share_a_group() -> None:
    rows = [line("naive", "8"), line("sdpa", "8"), line("naive", "4")]
    rows += [line("sdpa", "4"), line("triton", "4")]

    groups = grouped_lines(rows, "model", ["batch", "dtype"])

    assert [group.title for group in groups] == ["batch 4, fp16", "batch 8, fp16"]
    assert [row["legend"] for row in groups[0].rows] == [
        "naive",
        "sdpa",
        "triton",
    ]


def test_a_line_without_a_counterpart_is_told_by_what_it_differs_in() -> None:
    rows = [line("naive", "8"), line("sdpa", "8"), line("naive", "1"), line("naive", "2")]

    *_, alone = grouped_lines(rows, "model", ["batch", "dtype"])

    assert alone.title.endswith("alone, fp16")
    assert [row["legend"] for row in alone.rows] == ["batch 1", "batch 2"]


def test_every_line_is_in_one_group_and_published_ones_say_so() -> None:
    rows = [line("naive", b, source=s) for b in "124" for s in ("measured", "published: paper")]
    rows += [line("sdpa", "4")]

    groups = grouped_lines(rows, "model", ["batch", "dtype"])

    assert sorted(r["series"] for g in groups for r in g.rows) == sorted(r["series"] for r in rows)
    told = [row["legend"] for group in groups for row in group.rows]
    assert sum("published: paper" in text for text in told) == 3
