"""bf16 convolutions by rounding, against float64 and against PyTorch's own bf16."""

import copy

import torch

from zoo.trainer.torch import emulated_bf16


def test_rounded_convolutions_are_bf16_convolutions():
    """Against float64 on the rounded operands, to the last bit of bf16, forwards and backwards; fp32 is untouched."""
    torch.manual_seed(0)
    plain = torch.nn.Sequential(torch.nn.Conv2d(8, 16, 3, 2, 1, bias=False))
    ours = copy.deepcopy(plain)
    emulated_bf16.convert_convolutions(ours)
    x = torch.randn(2, 8, 9, 9, requires_grad=True)
    assert torch.equal(ours(x), plain(x))
    with torch.autocast("cpu", torch.bfloat16):
        y = ours(x)
    assert y.dtype == torch.bfloat16
    (gradient,) = torch.autograd.grad(y.float().square().mean(), [x], retain_graph=True)
    y.float().square().mean().backward()

    source = x.detach().bfloat16().double().requires_grad_()
    exact = copy.deepcopy(plain).double()
    exact[0].weight.data = plain[0].weight.data.bfloat16().double()
    truth = exact(source)
    truth.square().mean().backward()
    for found, wanted in ((y, truth), (gradient, source.grad), (ours[0].weight.grad, exact[0].weight.grad)):
        assert (found.double() - wanted).abs().max() <= 2**-7 * wanted.abs().max()
    torch.testing.assert_close(y.double(), truth, rtol=2**-8, atol=1e-6)
    assert not torch.equal(y.float(), plain(x))


def test_rounded_convolutions_keep_16_bits_for_the_backward_pass():
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 8, 3, 1, 2, 2, groups=8),
        torch.nn.Conv2d(8, 4, 1),
    )
    reference = copy.deepcopy(net).to(torch.bfloat16)  # PyTorch's own bf16, by plain loops
    emulated_bf16.convert_convolutions(net)
    x, kept = torch.randn(2, 3, 9, 9), []
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.dtype) or tensor, lambda t: t)
    with hooks, torch.autocast("cpu", torch.bfloat16):
        y = net(x)
    assert kept and set(kept) == {torch.bfloat16}
    y.float().square().mean().backward()
    reference(x.bfloat16()).float().square().mean().backward()
    for ours, theirs in zip(net.parameters(), reference.parameters()):
        assert (ours.grad - theirs.grad.float()).abs().max() <= 2**-6 * theirs.grad.abs().max().float()


def test_convolutions_that_do_not_pad_with_zeros_are_left_alone():
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect"),
        torch.nn.Conv2d(8, 8, 3, padding="same"),
        torch.nn.Conv2d(8, 8, 3, padding=1),
    )
    emulated_bf16.convert_convolutions(net)
    assert [type(module) is emulated_bf16.EmulatedBF16Conv2d for module in net] == [False, False, True]
