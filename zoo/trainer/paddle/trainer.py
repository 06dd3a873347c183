"""One update in PaddlePaddle, as zoo/trainer/protocol.py states it."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import paddle
from paddle import nn

from data.batch import Batch, Field
from data.errors import UserError
from zoo.trainer.paddle import batchnorm, fp32, names, outputs, parallel, sync_batchnorm
from zoo.trainer.paddle.objectives import build
from zoo.trainer.paddle.scaler import LossScaler
from zoo.trainer.paddle.shard import ParameterShard
from zoo.trainer.paddle.update import Momentum, total_norm
from zoo.trainer.paddle.world import World
from zoo.trainer.protocol import Param, Plan

DTYPES = {"fp16": "float16", "bf16": "bfloat16"}
DeviceBatch = dict[str, paddle.Tensor]


class Trainer:
    """The common trainer interface; see zoo/trainer/protocol.py for every method's contract."""

    def __init__(self, Model: type, arch, objective, plan: Plan, world: World):
        self.plan, self.mode, self.place, self.size = plan, plan.mode, world.place, world.size
        if plan.fp16_allreduce and world.size > 1 and world.name == "cpu":
            raise UserError(
                "train.fp16_allreduce: Paddle sums fp16 to infinity between processes on a CPU; leave it out"
            )
        if plan.sync_bn and self.mode.compile and world.name == "cpu":
            raise UserError("train.sync_bn: to_static cannot compile it on a CPU; leave it or train.compile out")
        self.model = Model(arch)
        self.model.eval()  # a step switches it to training
        if plan.sync_bn and (world.size > 1 or world.name == "cpu"):
            self.model = sync_batchnorm.convert_sync_batchnorm(self.model, world.name == "cpu")
        if batchnorm.updates_biased_variance(self.place):
            batchnorm.convert_batchnorm(self.model)
        if self.mode.compute != "fp32":
            fp32.convert_to_fp32(self.model, plan.fp32_modules)
        self.train_forward, self.eval_forward = self._forwards()
        self.objective, self.output = build(objective, arch, plan, world), outputs.build(plan.output, arch)
        self.input = plan.fields[0].name
        self._constants = self._normalisation(plan.fields[0])
        self.tensors, self.transposed = names.named_tensors(self.model), names.transposed(self.model)
        self._freeze()
        self.shards: dict[str, ParameterShard] = getattr(self.objective, "shards", {})
        self.tensors.update((name, shard.values) for name, shard in self.shards.items())
        self.params = tuple(self._param(name, tensor) for name, tensor in self.tensors.items())
        if world.size > 1 and not plan.fp16_allreduce:  # after freezing: it looks at what is trained
            self.parallel = paddle.DataParallel(parallel.ForwardModule(self.model, self.train_forward))
        self.optimizer = Momentum(self.trainable, plan.param_group, plan.momentum)
        self.momentum_buffers = {**self.optimizer.momentum_buffers, **{name: shard.momentum for name, shard in self.shards.items()}}
        self.scaler = LossScaler(self.mode.compute == "fp16", plan.loss_scale)

    def to_device(self, batch: Batch) -> DeviceBatch:
        return {name: paddle.to_tensor(array, place=self.place) for name, array in batch.items()}

    def step(self, parts: Sequence[DeviceBatch], lr: float, number: int = 0) -> dict[str, Any]:
        self._train_mode()
        self.model.clear_gradients(set_to_zero=False)
        if self.shards:
            parts = self.objective.begin(parts, number)
        count = self._count(parts)
        shares = []
        for number, part in enumerate(parts, 1):
            with self._sums_over_ranks(number == len(parts)):
                with self._autocast():
                    output = self._outputs(
                        [self.preprocess(part[self.input]), *(part[name] for name in self.plan.dropout_masks)]
                    )
                share = self.objective.total(output, part) / count
                (share * (self.scaler.scale * self.size)).backward()  # the mean taken over ranks is their sum
            shares.append(share.detach())
        if self.plan.fp16_allreduce and self.size > 1:
            parallel.average_as_fp16([tensor.grad for tensor in self.trainable.values()])
        return {"loss": paddle.add_n(shares), **self._update(lr)}

    def read(self, output: Mapping[str, Any]) -> dict[str, float]:
        return {name: float(value) for name, value in output.items()}

    @paddle.no_grad()
    def predict(self, device_batch: DeviceBatch, size: tuple[int, int] | None = None) -> np.ndarray:
        self.model.eval()
        return self.output(
            lambda x: self.eval_forward([self.preprocess(x)]).astype("float32"), list(device_batch.values()), size
        ).numpy()

    def sync_batch_stats(self) -> None:
        if self.size > 1:
            parallel.average([tensor for name, tensor in self.tensors.items() if names.is_statistic(name)])

    def state_dict(self) -> dict[str, np.ndarray]:
        state = {name: self._array(name, tensor) for name, tensor in self.tensors.items()}
        state.update(self.scaler.state())
        state.update((f"momentum/{name}", self._array(name, tensor)) for name, tensor in self.momentum_buffers.items())
        return state

    @paddle.no_grad()
    def load_state_dict(self, values: Mapping[str, np.ndarray]) -> None:
        for name, value in values.items():
            kind, _, rest = name.rpartition("/")
            if kind == "scaler":
                self.scaler.load(rest, value)
            else:
                tensor = (self.momentum_buffers if kind == "momentum" else self.tensors)[rest]
                names.copy_into(tensor, value, rest in self.transposed)

    @paddle.no_grad()
    def nonfinite_report(self) -> str:
        state = [(f"weight or statistic {name}", tensor) for name, tensor in self.tensors.items()]
        trained = {**self.trainable, **{name: shard.active_rows for name, shard in self.shards.items()}}
        state += [(f"gradient of {name}", tensor.grad) for name, tensor in trained.items() if tensor.grad is not None]
        found = [what for what, tensor in state if not paddle.isfinite(tensor).all()]
        return f"not finite: {', '.join(found[:5])}{' and more' if len(found) > 5 else ''}" if found else "all finite"

    def _outputs(self, inputs: list[paddle.Tensor]) -> paddle.Tensor:
        return self.parallel(*inputs) if self.size > 1 and not self.plan.fp16_allreduce else self.train_forward(inputs)

    def _count(self, parts: Sequence[DeviceBatch]) -> int | paddle.Tensor:
        """The items that the update's mean loss is taken over, on all ranks."""
        counts = [self.objective.count(part) for part in parts]
        if self.objective.equal_counts:
            return self.size * sum(counts)
        return parallel.total(paddle.add_n(counts)).clip(min=1).astype("float32")

    def _sums_over_ranks(self, last: bool):
        """Gradients are exchanged while the last part of an update goes backward, and stay here before."""
        waits = self.size > 1 and not self.plan.fp16_allreduce and not last
        return self.parallel.no_sync() if waits else nullcontext()

    @paddle.no_grad()
    def _update(self, lr: float) -> dict[str, float]:
        """Unscale, clip and update, unless the gradient is not finite."""
        scale = self.scaler.scale
        gradients = [tensor.grad for tensor in self.trainable.values() if tensor.grad is not None]
        # Waits for the device: Paddle's fused update cannot skip by itself, so the host has to decide.
        whole = float(total_norm(gradients)) / scale
        norm = float(np.hypot(whole, self._split_norm() / scale)) if self.shards else whole
        finite = bool(np.isfinite(norm))
        if finite:
            seen, clip = norm if self.plan.clip_sharded else whole, 1.0
            if self.plan.clip_norm is not None:
                clip = min(1.0, self.plan.clip_norm / max(seen, 1e-30))
            self.optimizer.step(lr, clip / scale)
            for name, shard in self.shards.items():
                factor, decay = self.plan.param_group(name)
                shard.step(
                    lr * factor,
                    decay,
                    self.plan.momentum,
                    (clip if self.plan.clip_sharded else 1.0) / (scale * self.size),
                )
        self.scaler.update(finite)
        return {
            "grad_norm": norm,
            "scale": scale,
            "skipped": self.scaler.skipped,
            "consecutive_skips": self.scaler.consecutive_skips,
        }

    def _split_norm(self) -> float:
        """The norm of the shards' gradients over all ranks. They are sums over ranks already, and no mean was taken."""
        mine = total_norm([shard.active_rows.grad for shard in self.shards.values()])
        return float(parallel.total(mine.square()).sqrt()) / self.size

    def _autocast(self):
        if self.mode.compute == "fp32":
            return nullcontext()
        # Level O2 usually goes with decorated, 16-bit parameters. Ours stay fp32 and are cast where they are used: so
        # they are their own master weights, and evaluation and checkpoints know of no 16 bits.
        return paddle.amp.auto_cast(
            level=self.mode.level, dtype=DTYPES[self.mode.compute], custom_white_list={"conv3d"}
        )  # which Paddle's list of convolutions lacks

    def _forwards(self) -> tuple[Callable, Callable]:
        """The model for training and for evaluation, as functions of a list of tensors."""
        model = self.model

        def train(inputs):
            return model(*inputs)

        def evaluate(inputs):
            return model(*inputs)

        if not self.mode.compile:
            return train, evaluate
        warnings.filterwarnings("ignore", "Tensor do not have 'place' interface")  # said of Paddle's own code
        # Two, because Paddle traces a model's Python once and does not look again whether it trains.
        return paddle.jit.to_static(train, full_graph=True), paddle.jit.to_static(evaluate, full_graph=True)

    def preprocess(self, x: paddle.Tensor) -> paddle.Tensor:
        """The model's input: pixels normalised, channels first."""
        if self._constants:
            factor, offset = self._constants
            x = x.astype("float32") * factor + offset
            x = paddle.moveaxis(x, -1, -3)
        return x

    def _normalisation(self, field: Field) -> tuple[paddle.Tensor, paddle.Tensor] | None:
        if field.mean is None:
            return None
        mean, std = (np.array(values, np.float64) for values in (field.mean, field.std))
        factor, offset = (1 / (255 * std)).astype(np.float32), (-mean / std).astype(np.float32)
        return paddle.to_tensor(factor, place=self.place), paddle.to_tensor(offset, place=self.place)

    def _freeze(self) -> None:
        for name, tensor in self.tensors.items():
            tensor.stop_gradient = names.is_statistic(name) or self.plan.param_group(name)[0] == 0
        self.trainable = {name: tensor for name, tensor in self.tensors.items() if not tensor.stop_gradient}
        norms = [layer for layer in self.model.sublayers() if isinstance(layer, nn.layer.norm._BatchNormBase)]
        self.frozen = [layer for layer in norms if layer.weight.stop_gradient and layer.bias.stop_gradient]
        for layer in norms:  # Paddle computes the gradients of both or of none: a bias alone would get zeros
            layer.weight.stop_gradient = layer.bias.stop_gradient = layer in self.frozen

    def _train_mode(self) -> None:
        if not self.model.training:
            self.model.train()
            for layer in self.frozen:
                layer.eval()

    def _param(self, name: str, tensor: paddle.Tensor) -> Param:
        shape, shard = tuple(tensor.shape), self.shards.get(name)
        if shard:
            return Param(name, (shard.count, *shape[1:]), rows=(shard.first, shard.last))
        return Param(name, shape[::-1] if name in self.transposed else shape, names.is_statistic(name))

    def _array(self, name: str, tensor: paddle.Tensor) -> np.ndarray:
        """In canonical layout: a copy, but of a shard, which may be large, a view where it lies on the host."""
        if name in self.shards:
            return np.from_dlpack(tensor.detach().cpu())
        return names.to_numpy(tensor, name in self.transposed)
