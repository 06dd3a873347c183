"""Faults in schedules, initial weights, specifications of models, and tasks, which all frameworks have in common."""

from functools import partial

from tests.mutants.fault import SHARED, Fault
from tests.mutants.killers import FORWARD, MARGIN

SCHEDULE, SCHEDULES = "zoo/run/schedule.py", "zoo/optim/schedules.py"
INITIALIZERS = "zoo/models/initializers.py"
TSM, RESNET = "zoo/models/tsm/spec.py", "zoo/models/resnet/spec.py"
DEEPLAB, ARCFACE = "zoo/models/deeplabv3plus/spec.py", "zoo/models/arcface/spec.py"
SHARDING = "zoo/trainer/sharding.py"
PREPROCESSING = "zoo/trainer/preprocessing.py"

TEST_SCHEDULE = "tests/zoo/run/test_schedule.py::test_"
TEST_INITIALIZERS = "tests/zoo/models/test_initializers.py::test_"
TEST_GROUPS = "tests/zoo/models/tsm/test_golden.py::test_parameter_groups_equal_upstream"
TEST_SHIFT = "tests/zoo/models/tsm/test_shift.py::test_"
TEST_ARCFACE = "tests/zoo/models/arcface/test_spec.py::test_"
TEST_DEEPLAB = "tests/zoo/models/deeplabv3plus/test_golden.py::test_equals_upstream[r18]"
TEST_CLASSIFY = "tests/zoo/tasks/test_classify.py::test_"
TEST_SEGMENT = "tests/zoo/tasks/test_segment.py::test_"
TEST_FACE = "tests/zoo/tasks/test_face.py::test_"
TEST_SHARDING = "tests/zoo/trainer/test_sharding.py::test_"
TEST_PREPROCESSING = "tests/zoo/trainer/test_preprocessing.py::test_scale_and_offset_normalize_pixels"

fault = partial(Fault, SHARED)

FAULTS = [
    fault(
        "the warm-up is one step ahead",
        SCHEDULE,
        "(position(step) + optim.warmup_offset) / warmup",
        "(position(step) + optim.warmup_offset + 1) / warmup",
        f"{TEST_SCHEDULE}warm_up_is_linear_up_to_the_schedule",
    ),
    fault(
        "schedules end one step early",
        SCHEDULE,
        'last = length - (optim.min_lr_at == "last_step")',
        "last = length - 1",
        f"{TEST_SCHEDULE}cosine",
    ),
    fault(
        "decay begins one step after the milestone",
        SCHEDULES,
        "sum(at.elapsed >= milestone",
        "sum(at.elapsed > milestone",
        f"{TEST_SCHEDULE}decay_begins_with_epoch_20_and_40_counted_from_0",
    ),
    fault(
        "the rate does not grow with the global batch",
        SCHEDULE,
        "else optim.lr * global_batch / optim.base_batch",
        "else optim.lr",
        f"{TEST_SCHEDULE}the_rate_grows_with_the_global_batch",
    ),
    fault(
        "poly without its power",
        SCHEDULES,
        "(1 - at.progress) ** optim.power",
        "(1 - at.progress)",
        f"{TEST_SCHEDULE}poly",
    ),
    fault(
        "cosine of the double angle",
        SCHEDULES,
        "math.cos(math.pi * progress)",
        "math.cos(2 * math.pi * progress)",
        f"{TEST_SCHEDULE}cosine",
    ),
    fault(
        "He initialization by the fan-in",
        INITIALIZERS,
        "fan_out = shape[0] * math.prod(shape[2:])",
        "fan_out = shape[1] * math.prod(shape[2:])",
        f"{TEST_INITIALIZERS}kaiming_normal_uses_the_fan_out",
    ),
    fault(
        "He initialization without the gain of ReLU",
        INITIALIZERS,
        "math.sqrt(2.0 / fan_out)",
        "math.sqrt(1.0 / fan_out)",
        f"{TEST_INITIALIZERS}kaiming_normal_uses_the_fan_out",
    ),
    fault(
        "uniform weights are positive",
        INITIALIZERS,
        "dtype=np.float32) * 2 - 1)",
        "dtype=np.float32))",
        f"{TEST_INITIALIZERS}uniform",
    ),
    fault(
        "tensors of equal shape start equal",
        INITIALIZERS,
        "zlib.crc32(name.encode()), block",
        "block",
        f"{TEST_INITIALIZERS}other_names_and_seeds_give_other_numbers",
    ),
    fault(
        "biases have the learning rate of weights",
        TSM,
        'return (2.0, 0.0) if name.endswith(".bias")',
        'return (1.0, 0.0) if name.endswith(".bias")',
        TEST_GROUPS,
    ),
    fault(
        "biases are decayed",
        TSM,
        "else (10.0, 0.0)",
        "else (10.0, 1.0)",
        TEST_GROUPS,
    ),
    fault(
        "partial BN freezes the first normalization too",
        TSM,
        'name.startswith("bn1.") or ".nl." in name',
        '".nl." in name',
        TEST_GROUPS,
    ),
    fault(
        "every block of a deep model shifts",
        TSM,
        "blocks[2] >= 23",
        "blocks[2] > 23",
        f"{TEST_SHIFT}which_blocks_shift",
    ),
    fault(
        "normalizations are decayed",
        RESNET,
        '"weights": is_norm(name) or name.endswith(".bias"),',
        '"weights": name.endswith(".bias"),',
        "tests/zoo/models/test_factors.py::test_a_resnet_decays_matrices_and_kernels",
    ),
    fault(
        "the first block of a dilated layer has the dilation of the others",
        RESNET,
        "first_dilation = (1 if number == 0 else 2), dilation\n",
        "first_dilation = (1 if number == 0 else 2), dilation * 2\n",
        f"{FORWARD}a_dilated_resnet_of_bottlenecks",
    ),
    fault(
        "the dilation of a layer's first block is not halved",
        DEEPLAB,
        "(max(dilation // 2, 1),) + dilations[1:]",
        "dilations",
        TEST_DEEPLAB,
    ),
    fault(
        "the blocks of layer4 have one dilation",
        DEEPLAB,
        "tuple(dilation << i for i in range(blocks))",
        "(dilation,) * blocks",
        f"{FORWARD}a_deeplab_of_paddleseg",
    ),
    fault(
        "classifiers start like other convolutions",
        DEEPLAB,
        "normal(0.01) if is_head(name) else kaiming_normal(shape)",
        "kaiming_normal(shape)",
        "tests/zoo/models/test_factors.py::test_a_deeplab_s_classifiers_start_small",
    ),
    fault(
        "the weight of the last normalization is trained",
        ARCFACE,
        'name == "features.weight" and not arch.is_plsc',
        'name == "features.weights" and not arch.is_plsc',
        f"{TEST_ARCFACE}lr_and_decay_scale",
    ),
    fault(
        "both variants have epsilon 1e-5",
        ARCFACE,
        "2e-5 if self.is_plsc else 1e-5",
        "1e-5",
        "tests/zoo/models/arcface/test_golden.py::test_equals_upstream",
    ),
    fault(
        "slopes of PReLU start at 0",
        ARCFACE,
        "return constant(0.25)",
        "return constant(0.0)",
        f"{TEST_ARCFACE}initializers",
    ),
    fault(
        "pixels are not divided by 255",
        PREPROCESSING,
        "1 / (255 * std)",
        "1 / std",
        TEST_PREPROCESSING,
    ),
    fault(
        "mean and deviation of BGR",
        PREPROCESSING,
        "np.array(field.mean, np.float64), np.array(field.std, np.float64)",
        "np.array(field.mean[::-1], np.float64), np.array(field.std[::-1], np.float64)",
        TEST_PREPROCESSING,
    ),
    fault(
        "the mean is not divided by the deviation",
        PREPROCESSING,
        "(-mean / std)",
        "(-mean)",
        TEST_PREPROCESSING,
    ),
    fault(
        "the margin's threshold is at the margin",
        "zoo/losses/face/combined.py",
        "return math.cos(math.pi - self.m2)",
        "return math.cos(self.m2)",
        f"{TEST_FACE}the_threshold_rule_of_arcface",
    ),
    fault(
        "the offset beyond the threshold has a cosine",
        "zoo/losses/face/combined.py",
        "return self.m2 * math.sin(math.pi - self.m2)",
        "return self.m2 * math.cos(math.pi - self.m2)",
        f"{MARGIN}target_logits_follow_the_formula",
    ),
    fault(
        "the usual loss in spite of the setting",
        "zoo/run/cli.py",
        "losses.load_loss(task, loss) if loss else",
        "losses.load_loss(task, loss) if False else",
        "tests/zoo/config/test_variants.py::test_the_loss_decides_the_keys",
    ),
    fault(
        "the fifth place does not count for top-5",
        "zoo/tasks/classify.py",
        "(rank < 5)",
        "(rank < 4)",
        f"{TEST_CLASSIFY}a_correct_a_top_five_and_a_wrong_prediction",
    ),
    fault(
        "the confusion matrix counts a tie as right",
        "zoo/tasks/classify.py",
        "(predictions == labels) & ~correct",
        "(predictions != labels) & ~labelled",
        f"{TEST_CLASSIFY}the_confusion_matrix",
    ),
    fault(
        "images show samples of other ranks beside the predictions",
        "zoo/visualization/common/evaluation.py",
        "index = first * self._world_size + row",
        "index = first + row",
        "tests/zoo/visualization/test_evaluation.py::test_the_samples_are_spread_over_those_of_rank_0",
    ),
    fault(
        "the union counts the intersection twice",
        "zoo/tasks/segment.py",
        "union = labelled + predicted - correct",
        "union = labelled + predicted",
        f"{TEST_SEGMENT}an_example_by_hand",
    ),
    fault(
        "hard pixels are mined for auxiliary logits, too",
        "zoo/losses/segment/cross_entropy.py",
        "return replace(self, ohem_kept=None, ohem_threshold=None)",
        "return self",
        "tests/zoo/losses/test_losses.py::test_hard_pixels_are_mined_for_the_first_logits_alone",
    ),
    fault(
        "Partial FC draws among all rows, positives or not",
        SHARDING,
        "return sample_active_rows(positives[positives >= 0],",
        "return sample_active_rows(positives[:0],",
        f"{TEST_SHARDING}the_positives_are_those_of_the_batch_on_this_rank",
    ),
    fault(
        "negative rows are not moved past the positive ones",
        SHARDING,
        'np.searchsorted(positives - np.arange(len(positives)), negatives, side="right")',
        'np.searchsorted(positives, negatives, side="right")',
        f"{TEST_SHARDING}all_positives_are_sampled_and_the_others_uniformly",
    ),
    fault(
        "every update draws the same rows",
        SHARDING,
        'order.generator(seed, f"rows of rank {rank}", step)',
        'order.generator(seed, f"rows of rank {rank}", 0)',
        f"{TEST_SHARDING}a_sample_is_a_function_of_seed_rank_and_step",
    ),
    fault(
        "ranks beyond the remainder start one row late",
        SHARDING,
        "rank * per_rank + min(rank, remainder)",
        "rank * per_rank + rank",
        f"{TEST_SHARDING}row_ranges_are_contiguous_and_balanced",
    ),
    fault(
        "a loss scale grows twice as often",
        "zoo/trainer/loss_scale.py",
        "GROWTH_INTERVAL = 2000",
        "GROWTH_INTERVAL = 1000",
        "tests/zoo/trainer/state_cases.py::case_the_loss_scale_halves_and_doubles",
    ),
    fault(
        "a static loss scale adapts",
        "zoo/trainer/plan.py",
        'self.dynamic_loss_scale and self.mode.compute == "fp16"',
        'self.mode.compute == "fp16"',
        "tests/zoo/trainer/state_cases.py::case_a_static_loss_scale_never_changes",
    ),
    fault(
        "synthetic labels are blocks of samples",
        "data/datasets/synthetic.py",
        "np.asarray(index % classes, np.int64)",
        "np.asarray(index // classes, np.int64)",
        "tests/data/datasets/test_synthetic.py::test_images_differ_and_every_class_is_as_frequent",
    ),
]
