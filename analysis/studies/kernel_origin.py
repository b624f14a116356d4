"""Whose kernels run: cuBLAS, Triton, ATen, ... by GPU and compile mode."""

from analysis.studies.engine.records import Chart, Study, Table, Value

STUDY = Study(
    name="kernel-origin",
    title="Kernel origin by GPU and compile mode",
    question="Whose code are the kernels that take the time?",
    about="Share of kernel time by whose code the kernels are, and by what they compute. "
    "Unknown is the share that no rule recognises.",
    filters={},
    tables=(
        Table(
            title="Share of kernel time by origin",
            rows=("gpu", "workload", "model", "compile"),
            columns=("origin",),
            values=(Value("origin", "share", "%", "origin_share", extra="origin"),),
            chart=Chart(kind="stacked", x="compile", colour="origin", value="origin"),
        ),
        Table(
            title="Share of kernel time by category",
            rows=("gpu", "workload", "model", "compile"),
            columns=("category",),
            values=(Value("category", "share", "%", "category_share", extra="category"),),
            chart=Chart(kind="stacked", x="compile", colour="category", value="category"),
        ),
    ),
    job={"workload": "decode", "params": {"compile": "none"}, "profilers": ["nsys"]},
)
