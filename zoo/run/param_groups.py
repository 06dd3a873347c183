"""Hyper-parameters of each parameter: those of the model's specification, changed by the rules of `optim.groups`."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zoo.config.param_groups import GroupRule
from zoo.config.schema import Optim
from zoo.data.errors import UserError
from zoo.models import Spec
from zoo.trainer.plan import ParamGroup

STATISTICS = (".running_mean", ".running_var")
EXAMPLES = 3  # names in a message


def of_model(spec: Spec, arch: Any, optim: Optim) -> Callable[[str], ParamGroup]:
    """Return the hyper-parameters of a parameter as a function of its canonical name.

    The factors of all rules that match a name are multiplied with each other and with those of the specification.
    """

    def param_group(name: str) -> ParamGroup:
        lr_scale, decay_scale = spec.lr_and_decay_scale(arch, name)
        for rule in optim.groups:
            if rule.matches(name):
                lr_scale, decay_scale = lr_scale * (0 if rule.freeze else rule.lr), decay_scale * rule.decay
        return ParamGroup(lr_scale, decay_scale * optim.weight_decay)

    return param_group


def describe(rules: Sequence[GroupRule], shapes: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    """Return a line about each rule: the parameters that it matches and what it does.

    Args:
        rules: of the recipe.
        shapes: of all tensors of the model, by canonical name.

    Raises:
        UserError: a rule matches no parameter, or no parameter is left to train.
    """
    sizes = {name: math.prod(shape) for name, shape in shapes.items() if not name.endswith(STATISTICS)}
    lines, frozen = [], set()
    for rule in rules:
        matched = [name for name in sizes if rule.matches(name)]
        if not matched:
            names = list(sizes)
            raise UserError(
                f"optim.groups: {rule.match!r} matches no parameter as a whole; there are "
                f"{', '.join(names[:EXAMPLES])} and {len(names) - EXAMPLES} more, up to {names[-1]}"
            )
        if rule.freeze or rule.lr == 0:
            frozen.update(matched)
        elements = sum(sizes[name] for name in matched)
        lines.append(f"optim.groups: {rule.match}: {len(matched)} parameters, {elements:,} elements: {rule}")
    if frozen == sizes.keys():
        raise UserError("optim.groups: no parameter is left to train; freeze fewer")
    return tuple(lines)
