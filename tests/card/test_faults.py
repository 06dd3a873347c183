"""Faults that a test of this folder notices: one replacement of text each, as in tests/mutants."""

from functools import partial

import pytest

from tests.card import test_mindspore, test_races, test_ranks, test_reports, test_updates
from tests.mutants.fault import Fault, plant
from tests.mutants.run import copied_tree

pytestmark = pytest.mark.card


def update(name):
    recorded = test_updates.UPDATES[name]
    return lambda card, _: test_updates.test_an_update_asks_for_what_is_recorded(card, recorded)


def ranks(model):
    return lambda card, folder: test_ranks.test_two_ranks_train_save_resume_and_evaluate(card, model, folder)


FAULTS = {  # name: old text, new text, test, what it says
    "the host waits for the loss": (
        "shares.append(share.detach())",
        "shares.append(share.item())",
        update("resnet50-amp"),
        "synchronizing CUDA operation",
    ),
    "the batch is not pinned": (
        "tensor.pin_memory().to(self.device",
        "tensor.to(self.device",
        update("resnet50-amp"),
        "pageable to device",
    ),
    "batches are counted": (
        "module.num_batches_tracked = None",
        "pass",
        update("resnet50-amp"),
        "'kernels': 254} != {'kernels': 201}",
    ),
    "batch normalization in fp32": (
        "for name in plan.fp32_modules:",
        "for name in [name for name, module in model.named_modules() if isinstance(module, _BatchNorm)]:",
        update("tsm-amp"),
        "'peak_mib': [0-9]+} != ",
    ),
    "an update of each tensor": (
        "(key, list(names)) for key, names in groupby(sorted(own, key=numbers), numbers)",
        "(numbers(name), [name]) for name in own",
        update("lars"),
        "'kernels': [0-9]{4}} != ",
    ),
    "PyTorch's SyncBatchNorm": (
        "GpuFunction.apply(x, self.weight, self.bias, *statistics, self.eps, self.momentum, self.world_size)",
        "nn.modules._functions.SyncBatchNorm.apply(x, self.weight, self.bias, *statistics, self.eps, self.momentum, "
        "torch.distributed.group.WORLD, self.world_size)",
        update("deeplabv3plus-8"),
        r"_all\[mask\]",  # for which the host waits
    ),
    "gradients travel after the backward pass": (
        "gradient_as_bucket_view=True)",
        "gradient_as_bucket_view=True, bucket_cap_mb=1000)",
        update("resnet50-8"),
        "'overlap': 0} != {'overlap': 158}",
    ),
    "weights are cast back after the backward pass": (
        "copies[0].grad_fn._set_sequence_nr(sys.maxsize)",
        "pass",
        update("resnet50-8"),
        "'overlap': 0} != {'overlap': 158}",
    ),
    "no wait for the copy of a batch": (
        "self.copy_stream.synchronize()",
        "pass",
        lambda card, _: test_races.test_the_copy_of_a_batch_is_ordered_before_the_update(card),
        "CUDASanitizerErrors",
    ),
    "the setting cudnn_benchmark is not read": (
        "fast if benchmark is None else benchmark",
        "fast",
        lambda card, folder: test_reports.test_a_report_runs_with_its_batch(card, test_reports.TSM_32, True, folder),
        "assert False is True",
    ),
    "the build is not asked for the kernels of the card": (
        "_check_build(torch.cuda.get_device_capability(), torch.cuda.get_arch_list())",
        "pass",
        lambda card, folder: test_reports.test_what_is_impossible_is_refused_in_a_line(
            card, *test_reports.REFUSALS["no kernels"], folder
        ),
        "Actual message: 'code 1: .*cuDNN version",
    ),
    "every rank opens the first card": (
        "with torch.cuda.device(self.device), torch.cuda.stream(self.copy_stream):",
        "with torch.cuda.stream(self.copy_stream):",
        ranks("resnet50"),
        "a second device of the process",
    ),
    "the ranks reduce different types": (
        "    if fp16_allreduce:",
        "    if dist.get_rank():",
        ranks("resnet50"),
        "mismatch between collectives",
    ),
}


def fits(card, folder):
    test_mindspore.test_a_batch_of_256_fits_in_16_gb_with_normalizations_in_16_bits(card, folder)


def deeplabv3plus(card, folder):
    words = "train.py -c tests/gpu/recipes/deeplabv3plus.yaml --framework mindspore --device cuda --amp"
    card(*words.split(), "-o", "data.workers=0", "--max-steps", 1, "--out", folder / "run")


FAULTS_OF_MINDSPORE = {
    "memory is planned as MindSpore does": (
        'mindspore.set_context(memory_optimize_level="O1")',
        "pass",
        fits,
        "code 1",
    ),
    "normalizations in fp32": (
        '"O3" if self.device_type == "cuda"',
        '"O2" if self.device_type == "cuda"',
        fits,
        "code 2: .*too little memory",
    ),
    "dilated convolutions in 16 bits": (
        "(on_gpu and isinstance(cell, nn.Conv2d) and max(cell.dilation) > 1)",
        "False",
        deeplabv3plus,
        "Conv2DBackpropInput",
    ),
}


@pytest.fixture(scope="module")
def tree():
    with copied_tree() as copy:
        yield copy


def check(framework, name, fault, card, tree, folder):
    old, new, test, message = fault
    restore = plant(Fault(framework, name, old, new, test=""), tree)
    try:
        with pytest.raises((AssertionError, pytest.fail.Exception), match=f"(?s){message}"):
            test(partial(card, root=tree), folder)
    finally:
        restore()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_noticed(card, tree, name, tmp_path):
    check("torch", name, FAULTS[name], card, tree, tmp_path)


@pytest.mark.parametrize("name", FAULTS_OF_MINDSPORE)
def test_a_fault_of_mindspore_is_noticed(mindspore_card, tree, name, tmp_path):
    check("mindspore", name, FAULTS_OF_MINDSPORE[name], mindspore_card, tree, tmp_path)
