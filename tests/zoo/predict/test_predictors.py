"""The table of predictors."""

import pytest

from zoo import data
from zoo.data.datasets import synthetic
from zoo.data.errors import UserError
from zoo.predict import faces
from zoo.predict.predictors import PREDICTORS, find_predictor


def test_every_data_set_has_a_predictor_that_describes_its_model_input():
    assert sorted(name for datasets in PREDICTORS.values() for name in datasets) == data.names()
    for datasets in PREDICTORS.values():
        for name, predictor in datasets.items():
            settings = data.find(name).Settings()
            field = predictor.fields(settings)[0]
            assert field.mean and field.shape[-1] == 3 and predictor.extensions
            assert predictor.frame_template(settings) == getattr(settings, "frame_template", None)


def test_synthetic_faces_describe_the_same_input_as_their_split():
    settings = synthetic.Settings(kind="face", size=16)
    assert find_predictor("face", "synthetic").fields(settings) == synthetic.load(settings)[0].fields


def test_only_faces_are_compared():
    for task, datasets in PREDICTORS.items():
        for predictor in datasets.values():
            assert predictor.compare is (faces.compare if task == "face" else None)


@pytest.mark.parametrize("task, dataset", [("verify", "imagenet"), ("classify", "cityscapes")])
def test_a_missing_predictor_is_named(task, dataset):
    with pytest.raises(UserError, match=f"task {task} and the data set {dataset}: add one to PREDICTORS"):
        find_predictor(task, dataset)
