"""The contract of all tasks."""

import inspect

import pytest

from zoo import tasks
from zoo.data.errors import UserError
from zoo.models import list_models, load_spec


def parameters(function):
    return [name for name in inspect.signature(function).parameters if name != "self"]


@pytest.mark.parametrize("name", tasks.list_tasks())
def test_a_task_has_the_signatures_of_the_protocols(name):
    task = tasks.load_task(name)
    for function in ("output", "protocol", "Metric"):
        assert parameters(getattr(task, function)) == parameters(getattr(tasks.Task, function))
    for method in ("update", "result"):
        assert parameters(getattr(task.Metric, method)) == parameters(getattr(tasks.TaskMetric, method))
    assert isinstance(task.PRIMARY, str)
    settings = task.Settings()
    hash((settings, task.output(settings)))  # frozen


def test_every_model_has_a_task():
    assert {load_spec(model).TASK for model in list_models()} <= set(tasks.list_tasks())


def test_a_missing_task_names_the_available_ones():
    with pytest.raises(UserError, match="there is no task 'detect'; there are: classify, face, segment"):
        tasks.load_task("detect")
