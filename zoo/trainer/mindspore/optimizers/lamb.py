"""LAMB in MindSpore; the formula is in zoo/optim/lamb.py."""

from zoo.trainer.mindspore.optimizers import adamw


class Optimizer(adamw.Optimizer):
    """Update of a parameter."""

    def formula(self, lr, applied, weight, gradient, weight_decay, is_decayed, is_matrix, mean, square):
        update, mean, square = self.direction(applied, weight, gradient, weight_decay, is_decayed, mean, square)
        if is_matrix:
            of_weight, of_update = self.norm(weight), self.norm(update)
            update = self.rounded(self.ratio_or_one(of_weight, of_update, of_weight / of_update)) * update
        return weight - lr * update, mean, square
