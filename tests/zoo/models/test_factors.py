"""Which tensors are decayed, and how classifiers start, by lists written out here."""

from zoo.models.deeplabv3plus import spec as deeplab
from zoo.models.initializers import normal
from zoo.models.resnet import spec as resnet


def test_a_resnet_decays_matrices_and_kernels():
    """And neither biases nor normalizations, which have one axis."""
    arch = resnet.Arch(depth=50, num_classes=10, width=8)
    shapes = {name: shape for name, shape in resnet.shapes(arch).items() if ".running_" not in name}
    assert {name: resnet.lr_and_decay_scale(arch, name) for name in shapes} == {
        name: (1.0, float(len(shape) > 1)) for name, shape in shapes.items()
    }


def test_a_deeplab_s_classifiers_start_small():
    arch = deeplab.Arch(num_classes=19)
    shapes = deeplab.shapes(arch)
    small = {name for name, shape in shapes.items() if deeplab.initializer(arch, name, shape) == normal(0.01)}
    assert small == {"head.classifier.weight", "aux.classifier.weight"}
