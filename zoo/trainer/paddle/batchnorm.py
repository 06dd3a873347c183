"""The running variance as PyTorch and MindSpore keep it.

All three normalise by the biased variance of a batch, but the running variance of the others takes in the unbiased
one. Paddle's does so in cuDNN alone; on a CPU it takes in the biased one.
"""

import warnings

import paddle
import paddle.nn.functional as F
from paddle import nn

# Said of every training forward; it is what we want.
warnings.filterwarnings("ignore", "When training, we now always track global mean and variance")


def updates_biased_variance(place) -> bool:
    """Whether batch normalisation takes in the biased variance on this device: of 0 and 2 that is 1, else 2."""
    x = paddle.to_tensor([[[[0.0, 2.0]]]], place=place)
    mean, variance, weight, bias = (paddle.to_tensor([value], place=place) for value in (0.0, 0.0, 1.0, 0.0))
    F.batch_norm(x, mean, variance, weight, bias, training=True, momentum=0.0)
    return float(variance) < 1.5


class _UnbiasedBatchNorm:
    """A batch normalisation whose running variance takes in the unbiased variance of n values.

    m*v + (1-m)*biased*n/(n-1) is what Paddle makes of v*(n-1)/n, times n/(n-1). The gradient keeps the variance that
    went in, so it is not the layer's own that goes in.
    """

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        count = x.size // x.shape[1]
        mends = self.training and count > 1
        variance = self._variance * ((count - 1) / count) if mends else self._variance
        x = F.batch_norm(
            x,
            self._mean,
            variance,
            self.weight,
            self.bias,
            training=self.training,
            momentum=self._momentum,
            epsilon=self._epsilon,
        )
        if mends:
            paddle.assign(variance * (count / (count - 1)), self._variance)
        return x


class UnbiasedBatchNorm2D(_UnbiasedBatchNorm, nn.BatchNorm2D):
    pass


class UnbiasedBatchNorm3D(_UnbiasedBatchNorm, nn.BatchNorm3D):
    pass


def convert_batchnorm(model: nn.Layer) -> None:
    """Let the running variances of a model take in unbiased ones."""
    swap = {nn.BatchNorm2D: UnbiasedBatchNorm2D, nn.BatchNorm3D: UnbiasedBatchNorm3D}
    for layer in model.sublayers():
        layer.__class__ = swap.get(type(layer), type(layer))
