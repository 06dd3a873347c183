"""One update in PyTorch, as zoo/trainer/protocol.py states it."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import numpy as np
import torch
from torch import nn

from data.batch import Batch, Field
from zoo.trainer.protocol import Param, Plan
from zoo.trainer.torch import emulated_bf16, outputs, parallel, sync_batchnorm
from zoo.trainer.torch.names import named_tensors
from zoo.trainer.torch.objectives import build
from zoo.trainer.torch.scaler import LossScaler
from zoo.trainer.torch.shard import ParameterShard, reduce, squares
from zoo.trainer.torch.world import World

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
DeviceBatch = dict[str, torch.Tensor]


class Trainer:
    """The common trainer interface; see zoo/trainer/protocol.py for every method's contract."""

    def __init__(self, Model: type, arch, objective, plan: Plan, world: World):
        self.plan, self.mode, self.device, self.size = plan, plan.mode, world.torch_device, world.size
        self.model = Model(arch).to(self.device).eval()  # a step switches it to training
        for parameter in self.model.parameters():  # one by one: a model's own `to` refuses 3-D convolutions
            if self.mode.channels_last and parameter.dim() == 4:
                parameter.data = parameter.data.to(memory_format=torch.channels_last)
        if self.mode.compute == "bf16" and not world.has_bf16:
            emulated_bf16.convert_convolutions(self.model)
        for name in plan.fp32_modules if self.mode.compute != "fp32" else ():
            _keep_fp32(self.model.get_submodule(name))
        if plan.sync_bn and (world.size > 1 or self.device.type == "cpu"):
            self.model = sync_batchnorm.convert_sync_batchnorm(self.model, self.device)
        self.objective, self.output = build(objective, arch, plan, world), outputs.build(plan.output, arch)
        self.input = plan.fields[0].name
        self._constants = self._normalisation(plan.fields[0])
        self._freeze()
        self.eval_forward = torch.compile(self.model) if self.mode.compile else self.model
        self.ddp = parallel.wrap(self.model, plan.fp16_allreduce) if world.size > 1 else None
        self.train_forward = self.eval_forward
        if self.ddp:
            self.train_forward = torch.compile(self.ddp) if self.mode.compile else self.ddp
        self.shards: dict[str, ParameterShard] = getattr(self.objective, "shards", {})
        self.tensors = {**named_tensors(self.model), **{name: shard.values for name, shard in self.shards.items()}}
        self.trainable = {name: tensor for name, tensor in self.tensors.items() if tensor.requires_grad}
        self.params = tuple(self._param(name, tensor) for name, tensor in self.tensors.items())
        self.optimizer = self._sgd()
        self.scaler = LossScaler(self.device, self.mode.compute == "fp16", plan.loss_scale)

    def to_device(self, batch: Batch) -> DeviceBatch:
        device_batch = {name: torch.from_numpy(array) for name, array in batch.items()}
        if self.device.type != "cuda":
            return device_batch
        return {name: tensor.pin_memory().to(self.device, non_blocking=True) for name, tensor in device_batch.items()}

    def step(self, parts: Sequence[DeviceBatch], lr: float, number: int = 0) -> dict[str, torch.Tensor]:
        self._train_mode()
        self.optimizer.zero_grad(set_to_none=True)
        if self.shards:
            parts = self.objective.begin(parts, number)
        count = self._count(parts)
        loss = torch.zeros((), device=self.device)
        for number, part in enumerate(parts, 1):
            with self._sums_over_ranks(number == len(parts)):
                with torch.autocast(self.device.type, DTYPES[self.mode.compute], enabled=self.mode.compute != "fp32"):
                    output = self.train_forward(
                        self.preprocess(part[self.input]), *(part[name] for name in self.plan.dropout_masks)
                    )
                    share = self.objective.total(output, part) / count
                (share * (self.scaler.scale * self.size)).backward()  # the mean that is taken over ranks is their sum
            loss += share.detach()
        return {"loss": loss, **self._update(lr)}

    def read(self, output: Mapping[str, torch.Tensor]) -> dict[str, float]:
        values = torch.stack([value.float() for value in output.values()]).tolist()
        return dict(zip(output, values))

    @torch.no_grad()
    def predict(self, device_batch: DeviceBatch, size: tuple[int, int] | None = None) -> np.ndarray:
        self.model.eval()
        return (
            self.output(lambda x: self.eval_forward(self.preprocess(x)).float(), list(device_batch.values()), size)
            .cpu()
            .numpy()
        )

    @torch.no_grad()
    def sync_batch_stats(self) -> None:
        if self.size > 1:
            parallel.average([tensor for tensor in self.tensors.values() if not isinstance(tensor, nn.Parameter)])

    def state_dict(self) -> dict[str, np.ndarray]:
        state = {**self.tensors, **self.scaler.state()}
        state.update((f"momentum/{name}", self._momentum(name)) for name in {**self.trainable, **self.shards})
        split = {key for name in self.shards for key in (name, f"momentum/{name}")}
        arrays = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in state.items()}
        return {name: array if name in split else array.copy() for name, array in arrays.items()}

    @torch.no_grad()
    def load_state_dict(self, values: Mapping[str, np.ndarray]) -> None:
        for name, value in values.items():
            kind, _, rest = name.rpartition("/")
            source = torch.from_numpy(value if value.flags.writeable else np.array(value))  # torch warns of others
            if kind == "scaler":
                self.scaler.load(rest, source)
            elif kind == "momentum":
                self._momentum(rest).copy_(source)
            else:
                self.tensors[name].copy_(source)

    @torch.no_grad()
    def nonfinite_report(self) -> str:
        state = [(f"weight or statistic {name}", tensor) for name, tensor in self.tensors.items()]
        trained = {**self.trainable, **{name: shard.active_rows for name, shard in self.shards.items()}}
        state += [(f"gradient of {name}", tensor.grad) for name, tensor in trained.items() if tensor.grad is not None]
        found = [what for what, tensor in state if not torch.isfinite(tensor).all()]
        return f"not finite: {', '.join(found[:5])}{' and more' if len(found) > 5 else ''}" if found else "all finite"

    def _count(self, parts: Sequence[DeviceBatch]) -> int | torch.Tensor:
        """The items that the update's mean loss is taken over, on all ranks."""
        count = sum(self.objective.count(part) for part in parts)
        if self.objective.equal_counts:
            return self.size * count
        return parallel.total(count).clamp(min=1)

    def _sums_over_ranks(self, last: bool):
        """Gradients are exchanged while the last part of an update goes backward, and stay here before."""
        waits = self.size > 1 and not last
        return self.ddp.no_sync() if waits else nullcontext()

    def _update(self, lr: float) -> dict[str, torch.Tensor]:
        """Unscale, clip, and let the fused kernel skip the update on the device if the gradient is not finite."""
        scale = self.scaler.scale
        gradients = [
            tensor.grad for name, tensor in self.trainable.items() if tensor.grad is not None and name not in self.shards
        ]
        split = [shard.active_rows.grad.div_(self.size) for shard in self.shards.values()]  # a sum already: no mean was taken
        whole = torch.nn.utils.get_total_norm(gradients) / scale
        norm = whole
        if split:
            norm = torch.hypot(whole, reduce(sum(map(squares, split))).sqrt().float() / scale)
        finite = torch.isfinite(norm)
        divisor = scale
        if self.plan.clip_norm is not None:
            divisor = scale * torch.clamp((norm if self.plan.clip_sharded else whole) / self.plan.clip_norm, min=1.0)
            if not self.plan.clip_sharded:
                for part in split:
                    part.mul_(divisor / scale)
        self.optimizer.grad_scale = divisor
        self.optimizer.found_inf = (~finite).float()
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["factor"]
        self.optimizer.step()
        for name, shard in self.shards.items():
            if name not in self.trainable:
                factor, decay = self.plan.param_group(name)
                shard.step(lr * factor, decay, self.plan.momentum, divisor, finite)
        self.scaler.update(finite)
        return {
            "grad_norm": norm,
            "scale": scale,
            "skipped": self.scaler.skipped,
            "consecutive_skips": self.scaler.consecutive_skips,
        }

    def preprocess(self, x: torch.Tensor) -> torch.Tensor:
        """The model's input: pixels normalised, channels first."""
        if self._constants:
            factor, offset = self._constants
            # Channels last by construction: the pixels keep their order in memory, only the axes are renamed.
            x = x.float().mul_(factor).add_(offset).movedim(-1, -3)
        return x if self.mode.channels_last else x.contiguous()

    def _normalisation(self, field: Field) -> tuple[torch.Tensor, torch.Tensor] | None:
        if field.mean is None:
            return None
        mean, std = (torch.tensor(values, dtype=torch.float64) for values in (field.mean, field.std))
        return (1 / (255 * std)).float().to(self.device), (-mean / std).float().to(self.device)

    def _freeze(self) -> None:
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad_(self.plan.param_group(name)[0] != 0)
        self.frozen: list[nn.Module] = [
            module
            for module in self.model.modules()
            if isinstance(module, nn.modules.batchnorm._BatchNorm)
            and not (module.weight.requires_grad or module.bias.requires_grad)
        ]

    def _train_mode(self) -> None:
        if not self.model.training:
            self.model.train()
            for module in self.frozen:
                module.eval()

    def _sgd(self) -> torch.optim.Optimizer:
        groups: dict[tuple[float, float], list[torch.Tensor]] = {}
        for name, tensor in self.trainable.items():
            groups.setdefault(self.plan.param_group(name), []).append(tensor)
        optimizer = torch.optim.SGD(
            [
                {"params": members, "factor": factor, "weight_decay": decay}
                for (factor, decay), members in groups.items()
            ],
            lr=0.0,
            momentum=self.plan.momentum,
            fused=True,
        )
        # From the start, not at the first step: that one may be skipped.
        for tensor in self.trainable.values():
            optimizer.state[tensor]["momentum_buffer"] = torch.zeros_like(tensor)
        return optimizer

    def _momentum(self, name: str) -> torch.Tensor:
        own = self.shards[name].momentum if name in self.shards else None
        return self.optimizer.state[self.trainable[name]]["momentum_buffer"] if own is None else own

    def _param(self, name: str, tensor: torch.Tensor) -> Param:
        shape, shard = tuple(tensor.shape), self.shards.get(name)
        if shard:
            return Param(name, (shard.count, *shape[1:]), rows=(shard.first, shard.last))
        return Param(name, shape, not isinstance(tensor, nn.Parameter))


def _keep_fp32(module: nn.Module) -> None:
    """Let a module compute in fp32 under autocast."""
    forward = module.forward

    def wide(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return forward(x.float())

    module.forward = wide
