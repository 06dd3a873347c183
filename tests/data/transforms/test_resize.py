"""The limit of a resize; its pixels are those of test_pixels.py."""

import numpy as np
import pytest

from zoo.data.errors import BadSample
from zoo.data.transforms.resize import resize


@pytest.mark.parametrize("antialias", [True, False])
def test_a_strip_is_not_enlarged_to_billions_of_pixels(antialias):
    with pytest.raises(BadSample, match="its 1x60000 pixels would become 256x15360000; the limit is 67108864 in all"):
        resize(np.zeros((60000, 1, 3), np.uint8), 256, 256 * 60000, antialias)
