"""Images that DALI has decoded, as a tensor of Paddle."""

from typing import Any

import paddle

from zoo.data.loaders.dali_device import DeviceImages


def assemble(images: DeviceImages, place: Any) -> paddle.Tensor:
    """Return images in the order of their rows: uint8 (*images.order.shape, H, W, 3).

    Without a copy where DALI decoded all of them: its memory is free for other images when the tensor is dropped, so
    the trainer keeps it until the device has read it (copies.py). Other images are put in order
    on the host, since Paddle gathers no bytes on a GPU.
    """
    if not images.is_whole:
        return paddle.to_tensor(images.on_host(), place=place)
    tensor = paddle.from_dlpack(images.decoded[0])
    return tensor.reshape([*images.order.shape, *tensor.shape[1:]])
