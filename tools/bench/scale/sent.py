"""What an update of a recipe sends, counted from its parameters."""

from zoo import data
from zoo.bench.commands import estimate
from zoo.bench.scale.calibration import Messages
from zoo.models import load_spec, resolve_arch
from zoo.run import cli, schedule

BUCKET = 25 * 2**20  # bytes: the default of PyTorch's and Paddle's data parallel wrappers


def messages(request: cli.Request) -> Messages:
    """Count what an update of a recipe sends.

    Raises:
        UserError: the data are missing, or the recipe contradicts them.
    """
    config = request.config
    spec = load_spec(request.resolved["model.name"].value)
    train_set, _ = data.find(request.resolved["data.name"].value).load(config.data)
    arch = resolve_arch(spec, config.model, train_set.fields, len(train_set.classes))
    shapes = spec.shapes(arch)
    split = {name: shape for name, shape in shapes.items() if name in spec.SHARDED_PARAMETERS}
    trained = {
        name: shape for name, shape in shapes.items() if name not in split and estimate.is_trained(spec, arch, name)
    }
    plan = schedule.batch_plan(config.train, 1)
    size = estimate.bytes_of(trained)
    whole = config.framework == "mindspore" or (config.framework == "paddle" and config.train.fp16_allreduce)
    norms = sum(name.endswith(".running_mean") for name in shapes)
    width = sum(shape[1] for shape in split.values())
    return Messages(
        gradients=size // (2 if config.train.fp16_allreduce else 1),
        buckets=1 if whole else -(-size // BUCKET),
        synchronized=2 * norms if config.train.sync_bn else 0,
        gathered=plan.batch * plan.accumulate * width * estimate.FP32_SIZE,
    )
