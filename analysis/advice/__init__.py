"""Experiments: changes that apply to a run, what each should give, and how past predictions fared.

`experiments.experiments_of(view, choices)` is what pages and the command line ask; `score` compares
predictions with outcomes. Models are in `launches`, `arithmetic`, `batching` and `settings`, over
`step_work.StepWork`; every constant is in `constants`.
"""
