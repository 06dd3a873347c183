"""Modes of torch.compile; instead of CUDA graphs, a stand-in that writes gradients to the same memory every time."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

from tests.helpers.frameworks import adapter
from tests.zoo.trainer.tiny_reference import random_batch
from tests.zoo.trainer.trainer_setup import assert_equal, frozen_norm, make, param_group, update
from zoo.trainer.plan import Mode


class Recorded(torch.autograd.Function):
    """The identity, whose gradient is `buffer`, overwritten in every backward pass."""

    @staticmethod
    def forward(ctx, x, buffer):
        ctx.buffer = buffer
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return ctx.buffer.copy_(gradient).detach(), None


class Graph(nn.Module):
    """A model with the gradients of its parameters in memory of its own, as in a CUDA graph."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.buffers_of = {name: torch.empty_like(tensor) for name, tensor in model.named_parameters()}

    def forward(self, *inputs):
        parameters = {
            name: Recorded.apply(tensor, self.buffers_of[name]) if tensor.requires_grad else tensor
            for name, tensor in self.model.named_parameters()
        }
        return functional_call(self.model, parameters, inputs)


@pytest.fixture
def calls(monkeypatch):
    """Let torch.compile return a Graph; yield the modes that it was called with, and a mark for every new step."""
    found = []

    def compile(model, mode=None):
        found.append(mode)
        return Graph(model) if mode else model

    monkeypatch.setattr(torch, "compile", compile)
    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", lambda: found.append("mark"))
    return found


@pytest.mark.parametrize("group", [param_group, frozen_norm])
def test_micro_batches_add_up_although_a_graph_overwrites_gradients(calls, group):
    backend = adapter("torch")
    eager = make(backend, Mode("fp32", None, True, True), accumulate=3, group=group)  # the stand-in compiles nothing
    calls.clear()
    recorded = make(backend, Mode("fp32", None, True, "reduce-overhead"), accumulate=3, group=group)
    assert calls == [None, "reduce-overhead"]
    for step in range(3):
        batches = [random_batch(seed=3 * step + i) for i in range(3)]
        assert update(recorded, *batches, step=step) == update(eager, *batches, step=step)
        assert_equal(recorded.state_dict(), eager.state_dict())
        assert_equal(recorded.gradients(), eager.gradients())
    assert calls[2:] == ["mark"] * 9


@pytest.mark.parametrize("setting, modes", [(False, []), (None, []), (True, [None])])
def test_without_a_mode_there_are_no_graphs(calls, setting, modes):
    trainer = make(adapter("torch"), Mode("fp32", None, True, setting))
    assert calls == modes and trainer.train_forward is trainer.eval_forward
    update(trainer, random_batch())
    assert calls == modes


def test_predictions_are_no_graphs(calls):
    trainer = make(adapter("torch"), Mode("fp32", None, True, "max-autotune"))
    assert calls == [None, "max-autotune"]
    assert isinstance(trainer.train_forward, Graph) and trainer.eval_forward is trainer.model
