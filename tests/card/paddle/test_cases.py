"""The cases of all trainers, and Paddle's own, on the device: in 16 bits too, and with slices that are copies."""

import pytest

from tests.helpers import frameworks
from tests.zoo.trainer.test_trainer import COMMON, OWN

pytestmark = pytest.mark.slow

MODULES = (*(f"zoo.trainer.{name}_cases" for name in COMMON), f"zoo.trainer.{OWN['paddle'][0]}")
LEFT_OUT = {  # what the device does not have, and the cases of it
    "fp64, which is refused": [
        "case_a_batch_without_a_label_changes_statistics_alone",
        "case_modules_equal_numpy_in_fp64",
    ],
    "memory that is counted as the host's": [
        "case_checkpointed_modules_keep_less",
        "case_memory_of_an_update_with_a_class_matrix",
    ],
    "Paddle's synchronized normalization": ["case_two_ranks_with_synchronized_normalization"],
    "what is refused or mended on a CPU": [
        "case_sums_over_millions_are_exact",
        "case_synchronized_normalization_is_not_compiled",
        "case_what_paddle_cannot_sum_is_refused",
    ],
}
CASES = [(module, case) for module in MODULES for case in frameworks.names(module)]


@pytest.fixture(scope="module")
def worker(variables):
    made = frameworks.Worker("paddle", FLAGS_use_stride_kernel="0", **variables)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("module", "case"), [pair for pair in CASES if all(pair[1] not in cases for cases in LEFT_OUT.values())]
)
def test_on_the_device(worker, module, case):
    if error := worker.run(module, case, 600):
        pytest.fail(error, pytrace=False)
