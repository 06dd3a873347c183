"""All planted faults."""

from tests.mutants import data_check_faults, mindspore_faults, paddle_faults, shared_faults, torch_faults

FAULTS = [
    *torch_faults.FAULTS,
    *paddle_faults.FAULTS,
    *mindspore_faults.FAULTS,
    *shared_faults.FAULTS,
    *data_check_faults.FAULTS,
]
