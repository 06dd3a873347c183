"""A model of an installed package: that of docs/extending.md is trained, continued, loaded and applied."""

import shutil

import numpy as np
import pytest
from PIL import Image

import zoo
from tests.helpers.cli import call_zoo
from tests.helpers.package import documented, forget, install
from tests.helpers.paths import ROOT
from tests.helpers.training import events, run_here
from zoo import models
from zoo.commands import predict
from zoo.data.errors import UserError

torch = pytest.importorskip("torch")
SMALL = {
    "data.size": 32,
    "data.train_images": 16,
    "data.val_images": 8,
    "data.workers": 0,
    "train.epochs": "null",
    "train.steps": 4,
    "train.batch": 4,
    "train.global_batch": "null",
    "train.log_every": 1,
    "train.save_every": "2 steps",
    "optim.warmup": "0 steps",
    "optim.schedule": "constant",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Install the code of docs/extending.md; return its folder."""
    assert len(documented()["mynet/spec.py"].splitlines()) <= 30
    install(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    yield tmp_path
    forget()


def train(folder, *words, **changes):
    settings = {**SMALL, "model.name": "mynet", "data.root": folder.parent / "shapes", **changes}
    pairs = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
    recipe = ["-c", str(ROOT / "configs/resnet50_demo.yaml"), *pairs, "--device", "cpu", "--out", folder]
    return run_here(["python", "train.py", *(words or recipe)])


def test_the_model_of_the_documentation(package):
    whole, cut = package / "whole", package / "cut"
    ran = train(whole, **{"model.width": 8})
    assert ran.returncode == 0, ran.stderr
    assert train(cut, **{"model.width": 8, "train.steps": 2}).returncode == 0
    ran = train(cut, "--resume", cut, "-o", "train.steps=4")
    assert ran.returncode == 0, ran.stderr
    losses = [[event["loss"] for event in events(folder) if event["event"] == "train"] for folder in (whole, cut)]
    assert len(losses[0]) == 4 and losses[0] == losses[1]
    loaded = zoo.load(whole, device="cpu")
    assert type(loaded.model).__module__ == "mynet.torch" and loaded.arch.width == 8
    assert loaded.model.head.weight.shape == (8, 8) and len(loaded.class_names) == 8
    predictions = loaded.predict(np.zeros((40, 50, 3), np.uint8)).probabilities
    assert sum(predictions) == pytest.approx(1, abs=1e-5)
    photo = str(package / "photo.png")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)).save(photo)
    features = loaded.features(photo)
    logits = loaded.model.head(torch.from_numpy(features)).softmax(0)
    assert features.shape == (8,) and logits.max().item() == pytest.approx(loaded.predict(photo).probabilities[0], 1e-5)
    words = ("predict", photo, "--weights", whole, "--device", "cpu", "--out", package / "out", "--explain")
    assert call_zoo(*words) == 0 and (package / "out/photo_explanation.png").exists()
    replace(package / "mynet/torch.py", "forward_features", "maps")
    for call in (lambda: zoo.load(whole, device="cpu").features(photo), lambda: predict.main([*map(str, words[1:])])):
        with pytest.raises(UserError, match="Model in mynet/torch.py has no forward_features"):
            call()


def replace(path, old, new):
    """Change a file of the package, and forget what was imported of it."""
    path.write_text(path.read_text().replace(old, new))
    shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
    forget()


def test_the_python_api_knows_the_model(package):
    assert zoo.list_models("my*") == ["mynet"] and len(zoo.list_models()) == 22
    model = zoo.create_model("mynet", num_classes=3, width=8, seed=4)
    arrays = zoo.numpy_weights("mynet", num_classes=3, width=8, seed=4)
    assert model.eval()(torch.zeros(2, 3, 32, 32)).shape == (2, 3)
    assert all(np.array_equal(model.state_dict()[name].numpy(), array) for name, array in arrays.items())
    with pytest.raises(UserError, match="num_classes: mynet was published for no data set; give the number of classes"):
        zoo.create_model("mynet")
    with pytest.raises(UserError, match="depth: mynet has no such option; there are: num_classes, width"):
        zoo.create_model("mynet", num_classes=3, depth=50)
    replace(package / "mynet/spec.py", "Count | None = None", "Count | None = 12")
    assert zoo.create_model("mynet").head.out_features == 12


def test_names_that_a_spec_may_leave_out(package):
    spec = models.load_spec("mynet")
    arch = models.resolve_arch(spec, spec.Arch(), [], 5)
    assert arch == spec.Arch(num_classes=5, width=16) and spec.flops(arch, (32, 32, 3)) == 0
    assert all(hasattr(spec, name) for name in models.SPEC_NAMES)
    drawn = {name: spec.initializer(arch, name, shape).distribution for name, shape in spec.shapes(arch).items()}
    assert drawn == {
        "conv.weight": "normal",
        "norm.weight": "ones",
        "norm.bias": "zeros",
        "norm.running_mean": "zeros",
        "norm.running_var": "ones",
        "head.weight": "uniform",
        "head.bias": "zeros",
    }
    with (package / "mynet" / "spec.py").open("a") as file:
        file.write("\n\ndef flops(arch, shape):\n    return 7\n")
    forget()
    assert models.load_spec("mynet").flops(arch, (32, 32, 3)) == 7


def test_mistakes(package):
    with pytest.raises(UserError, match="the model mynet has no implementation for 'paddle'; choose one of: torch"):
        models.load_model_class("mynet", "paddle")
    with pytest.raises(UserError, match="there is no mynet/onnx.py"):
        models.require_graph("mynet")
    replace(package / "mynet/torch.py", "from torch import nn", "import nowhere\nfrom torch import nn")
    with pytest.raises(UserError, match="the model mynet of the package mynet cannot be imported: .*'nowhere'"):
        zoo.create_model("mynet", num_classes=2)
    replace(package / "mynet/torch.py", "import nowhere", "")
    replace(package / "mynet/torch.py", "class Model", "class Net")
    with pytest.raises(UserError, match="mynet/torch.py has no class Model"):
        models.load_model_class("mynet", "torch")
    replace(package / "mynet/spec.py", "num_classes: Count | None = None", "classes: int = 2")
    with pytest.raises(UserError, match="mynet/spec.py lacks the field num_classes of Arch, with a default"):
        models.load_spec("mynet")
    spec = package / "mynet/spec.py"
    replace(spec, spec.read_text(), "from nowhere import Arch\n")
    with pytest.raises(UserError, match="the model mynet of the package mynet cannot be imported: .*'nowhere'"):
        models.load_spec("mynet")
    replace(spec, spec.read_text(), "Arch = None\n")
    with pytest.raises(UserError, match="mynet/spec.py lacks shapes; define"):
        models.load_spec("mynet")


def test_an_installed_package_cannot_replace_a_model_of_the_zoo(package):
    entry_points = package / "mynet-1.0.dist-info" / "entry_points.txt"
    entry_points.write_text(entry_points.read_text() + "[zoo.models]\nresnet = mynet\n")
    forget()
    assert models.folder("resnet") == "zoo/models/resnet" and "mynet" in models.list_models()


def test_variants_of_a_package(package):
    spec = package / "mynet/spec.py"
    replace(
        spec,
        spec.read_text(),
        spec.read_text() + "\nVARIANTS = {'mynet_s': {'width': 4}, 'mynet_l': {}}\nNUM_CLASSES = 6\n",
    )
    assert zoo.list_models("my*") == ["mynet_s", "mynet_l"]
    arrays = zoo.numpy_weights("mynet_s")
    assert arrays["conv.weight"].shape == (4, 3, 3, 3) and arrays["head.weight"].shape == (6, 4)
    with pytest.raises(UserError, match="width: is part of the model's name; choose one of: mynet_s, mynet_l"):
        zoo.numpy_weights("mynet_s", width=8)


def test_a_model_folder_of_a_checkout_has_a_name(monkeypatch):
    """A model that trains is one that zoo.create_model knows, without a further list."""
    monkeypatch.setattr(models.load_spec("resnet"), "VARIANTS", {})
    assert zoo.list_models("resnet*") == ["resnet"]
    assert zoo.numpy_weights("resnet", width=8)["fc.bias"].shape == (1000,)
