"""The recipes that are timed beside other projects."""

import pytest

from zoo.bench.peers.updates.tasks import TASKS
from zoo.run import choices, cli, schedule


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.framework == "torch"])
def test_the_memory_format_of_a_task_is_measured(name):
    """A recipe of too few updates would take the default."""
    config = cli.request(f"configs/{TASKS[name].recipe}.yaml", TASKS[name].overrides, framework="torch").config
    updates = schedule.clock(config.train, config.data.train_samples, 1).steps
    assert updates >= choices.MIN_UPDATES and config.train.channels_last is None
