"""Emulated bf16 convolutions against float64 and against PyTorch's own bf16."""

import copy

import torch

from zoo.trainer.torch import cpu_layers


def test_emulated_convolutions_equal_bf16_convolutions():
    """Against float64 on the rounded operands, to the last bit of bf16, forward and backward; fp32 stays the same."""
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3, 2, 1, bias=False))
    emulated = copy.deepcopy(plain)
    cpu_layers.emulate_bf16(emulated)
    x = torch.randn(2, 8, 9, 9, requires_grad=True)
    assert torch.equal(emulated(x), plain(x))
    with torch.autocast("cpu", torch.bfloat16):
        y = emulated(x)
    assert y.dtype == torch.bfloat16
    (gradient,) = torch.autograd.grad(y.float().square().mean(), [x], retain_graph=True)
    y.float().square().mean().backward()

    source = x.detach().bfloat16().double().requires_grad_()
    exact = copy.deepcopy(plain).double()
    exact[0].weight.data = plain[0].weight.data.bfloat16().double()
    expected = exact(source)
    expected.square().mean().backward()
    for result, value in ((y, expected), (gradient, source.grad), (emulated[0].weight.grad, exact[0].weight.grad)):
        assert (result.double() - value).abs().max() <= 2**-7 * value.abs().max()
    torch.testing.assert_close(y.double(), expected, rtol=2**-8, atol=1e-6)
    assert not torch.equal(y.float(), plain(x))


def test_emulated_convolutions_save_16_bits_for_the_backward_pass():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 8, 3, 1, 2, 2, groups=8),
        torch.nn.Conv2d(8, 4, 1),
    )
    reference = copy.deepcopy(model).to(torch.bfloat16)  # PyTorch's own bf16, by plain loops
    cpu_layers.emulate_bf16(model)
    x, dtypes = torch.randn(2, 3, 9, 9), []
    hooks = torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: dtypes.append(tensor.dtype) or tensor, lambda tensor: tensor
    )
    with hooks, torch.autocast("cpu", torch.bfloat16):
        y = model(x)
    assert dtypes and set(dtypes) == {torch.bfloat16}
    y.float().square().mean().backward()
    reference(x.bfloat16()).float().square().mean().backward()
    for emulated, native in zip(model.parameters(), reference.parameters()):
        assert (emulated.grad - native.grad.float()).abs().max() <= 2**-6 * native.grad.abs().max().float()


def test_convolutions_with_other_padding_than_zeros_are_not_converted():
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect"),
        torch.nn.Conv2d(8, 8, 3, padding="same"),
        torch.nn.Conv2d(8, 8, 3, padding=1),
    )
    cpu_layers.emulate_bf16(model)
    assert [type(module) is cpu_layers.EmulatedBF16Conv2d for module in model] == [False, False, True]
