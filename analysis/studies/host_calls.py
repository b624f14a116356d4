"""Where the host's time in CUDA calls goes."""

from analysis.studies.engine.records import Study
from analysis.studies.engine.values import api_table

STUDY = Study(
    name="host-calls",
    title="Host calls: share, total, count and average",
    question="Which CUDA calls does the host spend its time in?",
    about="The longest CUDA calls of the host under the profiler, over the whole capture, with "
    "their share of the time in calls. Waiting calls hold the time in which the GPU "
    "works.",
    filters={},
    tables=(api_table(where={}),),
    job={"workload": "transformer", "params": {"mode": "forward"}, "profilers": ["nsys"]},
)
