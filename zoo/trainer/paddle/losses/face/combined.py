"""zoo/losses/face/combined.py in PaddlePaddle."""

import paddle

from zoo.losses.face import combined


class Loss:
    """Margin of the cosines (M,) of samples and their classes: the cosines with it, and the derivative.

    The derivative stays finite where that of the angle is not.
    """

    uses_norms = False

    def __init__(self, settings: combined.Loss):
        self.settings = settings

    def __call__(self, cosine: paddle.Tensor, quality: paddle.Tensor | None) -> tuple[paddle.Tensor, paddle.Tensor]:
        m1, m2, m3 = self.settings.m1, self.settings.m2, self.settings.m3
        value, slope = cosine, paddle.ones_like(cosine)
        if (m1, m2) != (1.0, 0.0):
            sine = ((1 - cosine) * (1 + cosine)).sqrt()
            angle = m1 * paddle.atan2(sine, cosine) + m2
            value, slope = paddle.cos(angle), m1 * paddle.sin(angle) / sine.clip(min=combined.MIN_SINE)
        if self.settings.threshold and m2:
            is_beyond = cosine <= combined.threshold_cosine(m2)
            value = paddle.where(is_beyond, cosine - combined.threshold_offset(m2), value)
            slope = paddle.where(is_beyond, paddle.ones_like(slope), slope)
        return value - m3, slope
