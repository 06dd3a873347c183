"""Who started this process, and as which rank."""
from typing import Mapping

from data.errors import UserError
from zoo.trainer.protocol import Launch

# The variable in which each launcher tells the number of processes.
SIZES = {"WORLD_SIZE": "torchrun", "PADDLE_TRAINERS_NUM": "paddle.distributed.launch", "MS_WORKER_NUM": "msrun",
         "OMPI_COMM_WORLD_SIZE": "Open MPI", "PMI_SIZE": "MPICH"}


def detect(environ: Mapping[str, str]) -> Launch:
    """The launch that the environment describes. Raises UserError for several processes, which cannot train yet."""
    for variable, launcher in SIZES.items():
        if environ.get(variable, "1") != "1":
            raise UserError(f"{launcher} started {environ[variable]} processes ({variable}), but training in several "
                            "processes is not supported yet: start `python train.py` once, without a launcher")
    return Launch()
