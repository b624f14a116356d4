"""Studies: the tables that people publish, one declarative file each, filled from runs."""

from analysis.studies.engine.records import Cell, FitRow, Pivot, Study, StudyTable, Table
from analysis.studies.engine.run import drawn_cells, find_study, list_studies, run_study

__all__ = [
    "Cell",
    "FitRow",
    "Pivot",
    "Study",
    "StudyTable",
    "Table",
    "drawn_cells",
    "find_study",
    "list_studies",
    "run_study",
]
