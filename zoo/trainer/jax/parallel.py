"""Ranks, which are processes, as an axis of a mesh, and the collectives within functions compiled for it.

Tensors of a state are global arrays: replicated, or divided along their first axis, so that each rank has its own part.
The other axis of the mesh are the devices of a process, among which XLA divides each of its batches.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from zoo.data.loaders.packed import DeviceImages

AXIS, DEVICES = "ranks", "devices"
REPLICATED, OWN, BATCH = PartitionSpec(), PartitionSpec(AXIS), PartitionSpec((AXIS, DEVICES))


def to_global(mesh: Mesh, specs: Any, arrays: Any) -> Any:
    """Return arrays of this rank as global ones; specs: how each of them is divided, or those of a whole subtree."""

    def put(spec: PartitionSpec, subtree: Any) -> Any:
        sharding = NamedSharding(mesh, spec)
        return jax.tree.map(lambda array: jax.make_array_from_process_local_data(sharding, array), subtree)

    return jax.tree.map(put, specs, arrays, is_leaf=_is_spec)


def assemble(images: DeviceImages) -> jax.Array:
    """Return images in the order of their rows, uint8 (*images.order.shape, H, W, 3), where DALI has decoded them."""
    parts = [jnp.from_dlpack(part) for part in images.decoded]
    if len(images.rest):
        parts.append(jax.device_put(images.rest, parts[0].device))
    return jnp.concatenate(parts)[images.order]


def _is_spec(each: Any) -> bool:
    return isinstance(each, PartitionSpec)


def local(tree: Any) -> Any:
    """Return this rank's parts of global arrays, as arrays of its device."""
    return jax.tree.map(lambda array: array if array.is_fully_addressable else array.addressable_data(0), tree)


def compiled(function: Callable, mesh: Mesh, inputs: Any, outputs: Any, **options: Any) -> Callable:
    """Compile a function of this rank's parts for all ranks.

    Args:
        inputs, outputs: REPLICATED or OWN for each argument and result, or for parts of them.
        options: of jax.jit.
    """
    shardings = jax.tree.map(partial(NamedSharding, mesh), outputs, is_leaf=_is_spec)  # else XLA may name others
    divided = {DEVICES} if mesh.shape[DEVICES] > 1 else set()  # by the compiler; callbacks, of tests, refuse it
    by_rank = jax.shard_map(
        function,
        mesh=mesh,
        in_specs=inputs,
        out_specs=outputs,
        axis_names={AXIS, DEVICES} - divided,
        check_vma=False,
    )
    return jax.jit(by_rank, out_shardings=shardings, **options)


def sum_over_ranks(x: jax.Array, ranks: int) -> jax.Array:
    if ranks == 1:
        return x
    if isinstance(x, jax.core.Tracer):
        return lax.psum(x, AXIS)
    return jnp.asarray(process_allgather(x).sum(0))  # outside of a compiled function, in a pass that is recorded


def max_over_ranks(x: jax.Array, ranks: int) -> jax.Array:
    return lax.pmax(x, AXIS) if ranks > 1 else x


def all_gather(x: jax.Array, ranks: int) -> jax.Array:
    """Concatenate x of all ranks along the first axis: (n, ...) -> (ranks * n, ...)."""
    return lax.all_gather(x, AXIS, tiled=True) if ranks > 1 else x


def gather_on_host(x: np.ndarray, mesh: Mesh) -> np.ndarray:
    """Concatenate arrays of all ranks along the first axis, on the host of each. Called by all ranks."""
    if mesh.shape[AXIS] == 1:
        return x
    return np.asarray(local(_gathering(mesh)(to_global(mesh, OWN, x))))


@cache
def _gathering(mesh: Mesh) -> Callable:
    """Return a function that concatenates; another one would be compiled in each update."""
    return compiled(lambda part: all_gather(part, mesh.shape[AXIS]), mesh, OWN, REPLICATED)
