"""What a captured CUDA graph reads must outlive the step that was captured."""

import gc
import weakref
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest


class FakeGraph:
    """Stands in for `torch.cuda.CUDAGraph` where there is no GPU."""

    num_replays = 0

    def replay(self) -> None:
        self.num_replays += 1


@contextmanager
def nothing(*_: Any) -> Any:
    yield


def test_a_graph_keeps_the_weights_that_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from workloads.models.execution import capture

    stream = SimpleNamespace(wait_stream=lambda other: None)
    fakes = {"Stream": lambda: stream, "current_stream": lambda: stream, "stream": nothing}
    fakes |= {"synchronize": lambda: None, "CUDAGraph": FakeGraph, "graph": nothing}
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    model = torch.nn.Linear(2, 2)
    weights = weakref.ref(model.weight)

    replay = capture(lambda model=model: model(torch.zeros(2)), SimpleNamespace(on_gpu=True))
    del model
    gc.collect()
    replay()

    assert weights() is not None
