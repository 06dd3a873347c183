"""Faults in code that all frameworks run: no comparison of frameworks can notice them, so unit tests must."""

from functools import partial

from tests.mutants.fault import SHARED, Fault
from tests.mutants.killers import FORWARD, MARGIN, OBJECTIVE

ORDER = "data/order.py"
STREAM = "data/stream.py"
BATCH = "data/batch.py"
SAMPLING = "data/transforms/frame_sampling.py"
CLIPS = "data/transforms/clips.py"
PIXELS = "data/transforms/pixels.py"
CROPS = "data/transforms/crops.py"
PHOTOMETRIC = "data/transforms/photometric.py"
SEGMENTATION = "data/datasets/common/segmentation.py"
MIXING = "data/mixing.py"
PIPELINE = "data/augment/common/pipeline.py"
POLICIES = "data/augment/common/policies.py"
SCHEDULE, SCHEDULES = "zoo/run/schedule.py", "zoo/optim/schedules"
INITIALIZERS = "zoo/models/initializers.py"
TSM, RESNET = "zoo/models/tsm/spec.py", "zoo/models/resnet/spec.py"
DEEPLAB, ARCFACE = "zoo/models/deeplabv3plus/spec.py", "zoo/models/arcface/spec.py"
SHARDING = "zoo/trainer/sharding.py"
PREPROCESSING = "zoo/trainer/preprocessing.py"

TEST_STREAM = "tests/data/test_stream.py::test_"
TEST_SAMPLING = "tests/data/transforms/test_frame_sampling.py::test_"
TEST_CLIPS = "tests/data/transforms/test_clips.py::test_"
TEST_CROPS = "tests/data/transforms/test_crops.py::test_"
TEST_SEGMENTATION = "tests/data/datasets/common/test_segmentation.py::test_"
TEST_SCHEDULE = "tests/zoo/run/test_schedule.py::test_"
TEST_INITIALIZERS = "tests/zoo/models/test_initializers.py::test_"
TEST_SPECS = "tests/zoo/models/test_specs.py::test_"
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

DATA = [
    fault(
        "every epoch has the same order",
        ORDER,
        'generator(seed, "order", epoch)',
        'generator(seed, "order", 0)',
        f"{TEST_STREAM}every_epoch_has_its_own_permutation",
    ),
    fault(
        "the seed does not change the order",
        ORDER,
        'generator(seed, "order", epoch)',
        'generator(0, "order", epoch)',
        f"{TEST_STREAM}every_epoch_has_its_own_permutation",
    ),
    fault(
        "masks and augmentation draw the same numbers",
        ORDER,
        "(seed, zlib.crc32(purpose.encode())), numbers",
        "(seed, 0), numbers",
        f"{TEST_STREAM}dropout_masks_are_a_function_of_the_position_alone",
    ),
    fault(
        "all ranks read the same samples",
        STREAM,
        "start = (number * world_size + rank) * batch_size\n        positions",
        "start = number * world_size * batch_size\n        positions",
        f"{TEST_STREAM}ranks_split_the_batches_of_a_single_process",
    ),
    fault(
        "a sample is augmented the same way in every epoch",
        STREAM,
        'order.generators(seed, "augment", positions)',
        'order.generators(seed, "augment", [order.locate(seed, len(dataset), p)[1] for p in positions])',
        f"{TEST_STREAM}samples_get_new_random_numbers_in_every_epoch",
    ),
    fault(
        "dropout masks are those of the sample",
        STREAM,
        "order.generators(seed, mask.name, positions)",
        'order.generators(seed, mask.name, [int(sample["label"]) for sample in samples])',
        f"{TEST_STREAM}dropout_masks_are_a_function_of_the_position_alone",
    ),
    fault(
        "an evaluation drops the last batch",
        STREAM,
        "-(-len(dataset) // (batch_size * world_size))",
        "len(dataset) // (batch_size * world_size)",
        f"{TEST_STREAM}an_evaluation_counts_every_sample_once",
    ),
    fault(
        "padding counts as a sample",
        BATCH,
        "(np.arange(batch_size) < len(samples))",
        "(np.arange(batch_size) <= len(samples))",
        f"{TEST_STREAM}an_evaluation_counts_every_sample_once",
    ),
    fault(
        "dropout masks keep what they should drop",
        BATCH,
        ">= self.rate",
        "< self.rate",
        f"{TEST_STREAM}dropout_masks_keep_a_fraction_of_one_minus_rate[0.2]",
    ),
    fault(
        "the last frame of a segment is never drawn",
        SAMPLING,
        "rng.integers(0, length, size=segments)",
        "rng.integers(0, max(length - 1, 1), size=segments)",
        f"{TEST_SAMPLING}uniform_training_draws_every_frame_but_the_tail",
    ),
    fault(
        "frames count from 1",
        SAMPLING,
        "int(length * phase + length * k)",
        "int(length * phase + length * k) + 1",
        f"{TEST_SAMPLING}known_frames_of_a_300_frame_video",
    ),
    fault(
        "the first instead of the middle frames of segments",
        SAMPLING,
        "return _segment_frames(n, segments, 0.5)",
        "return _segment_frames(n, segments, 0.0)",
        f"{TEST_SAMPLING}known_frames_of_a_300_frame_video",
    ),
    fault(
        "dense clips span 65 frames",
        SAMPLING,
        "max(1, n - DENSE_SPAN + 1)\n    start",
        "max(1, n - DENSE_SPAN)\n    start",
        f"{TEST_SAMPLING}dense_training_draws_every_start_but_the_last_valid_one",
    ),
    fault(
        "half pixels of the center round up",
        CLIPS,
        "return round((width - size) / 2.0), round((height - size) / 2.0), size, size",
        "return (width - size + 1) // 2, (height - size + 1) // 2, size, size",
        f"{TEST_CLIPS}half_pixels_of_the_center_round_to_even",
    ),
    fault(
        "sides of a multi-scale crop are any pair of scales",
        CLIPS,
        "if abs(i - j) <= 1]",
        "if abs(i - j) <= 9]",
        "tests/data/transforms/test_clips.py",
    ),
    fault(
        "clips are flipped vertically",
        PIXELS,
        "return cv2.flip(image, 1)",
        "return cv2.flip(image, 0)",
        "tests/data/transforms/test_pixels.py::test_every_step_alone",
    ),
    fault(
        "the last row of positions of a crop is never drawn",
        CROPS,
        "int(rng.integers(height - h + 1))",
        "int(rng.integers(max(height - h, 1)))",
        f"{TEST_CROPS}a_draw_by_hand",
    ),
    fault(
        "aspect ratios of crops are drawn uniformly, not log-uniformly",
        CROPS,
        "math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))",
        "rng.uniform(ratio[0], ratio[1])",
        f"{TEST_CROPS}areas_are_uniform_and_aspect_ratios_log_uniform",
    ),
    fault(
        "40 % of the images are mirrored",
        "data/datasets/imagenet.py",
        "s.flip and rng.random() < 0.5",
        "s.flip and rng.random() < 0.4",
        "tests/data/datasets/test_mirroring.py::test_half_of_the_draws_mirror[image_of_imagenet]",
    ),
    fault(
        "40 % of the faces are mirrored",
        "data/datasets/faces.py",
        "rng.random() < 0.5",
        "rng.random() < 0.4",
        "tests/data/datasets/test_mirroring.py::test_half_of_the_draws_mirror[face]",
    ),
    fault(
        "the classes of mirrored clips are not swapped",
        "data/datasets/kinetics.py",
        "label = a + b - clip.label",
        "label = clip.label",
        "tests/data/datasets/test_kinetics.py::test_a_training_sample_swaps_the_labels_of_mirrored_clips_only",
    ),
    fault(
        "mirrored images keep their labels as they were",
        SEGMENTATION,
        "label = pixels.flip(label) if flipped else label",
        "label = label.copy()",
        f"{TEST_SEGMENTATION}training_samples_equal_upstream",
    ),
    fault(
        "labels are interpolated",
        SEGMENTATION,
        "_resize(label, (height, width), cv2.INTER_NEAREST)",
        "_resize(label, (height, width), cv2.INTER_LINEAR)",
        f"{TEST_SEGMENTATION}labels_are_never_interpolated",
    ),
    fault(
        "labels are padded with class 0",
        SEGMENTATION,
        "pixels.pad(label, canvas, (IGNORE_INDEX,))",
        "pixels.pad(label, canvas, (0,))",
        f"{TEST_SEGMENTATION}training_samples_equal_upstream",
    ),
    fault(
        "the contrast is changed after saturation and hue only",
        PHOTOMETRIC,
        "if params.contrast is not None and params.contrast_first:",
        "if params.contrast is not None and params.contrast_first and params.hue is None:",
        "tests/data/transforms/test_photometric.py::test_pixels_match_upstream_for_its_draws",
    ),
    fault(
        "the neighbor of a mixed sample is always the next one",
        MIXING,
        "return position ^ 1",
        "return position + 1",
        "tests/data/test_mixing.py::test_a_sample_is_mixed_with_its_neighbor_in_the_order_of_the_run",
    ),
    fault(
        "the soft label of CutMix has the weight that was drawn, not that of the box",
        MIXING,
        "return Mix(1 - (box[2] - box[0]) * (box[3] - box[1]) / (width * height), box)",
        "return Mix(weight, box)",
        "tests/data/test_mixing.py::test_boxes_pixels_and_labels_of_cutmix_are_upstream_s",
    ),
    fault(
        "mixed pixels are truncated, not rounded",
        MIXING,
        "return np.rint(blend).astype(np.uint8)",
        "return blend.astype(np.uint8)",
        "tests/data/test_mixing.py::test_mixed_pixels_and_labels_are_upstream_s",
    ),
    fault(
        "masks of scenes stay where they are when their images move",
        PIPELINE,
        "label = step.label(label) if step.label else label",
        "label = label.copy()",
        "tests/data/augment/test_samples.py::test_images_and_masks_of_scenes_move_together",
    ),
    fault(
        "a sign is drawn for no operation",
        POLICIES,
        "return -1 if name in SIGNED and rng.integers(2) else 1",
        "return 1",
        "tests/data/augment/test_policies.py::test_operations_and_signs_are_drawn_evenly",
    ),
    fault(
        "RandAugment posterizes two bits more",
        POLICIES,
        "8 - round(share * limits.posterize)",
        "6 - round(share * limits.posterize)",
        "tests/data/augment/test_policies.py::test_magnitudes_are_upstream_s",
    ),
    fault(
        "erased rectangles have width and height in each other's place",
        "data/augment/random_erasing.py",
        "h, w = round(math.sqrt(area * aspect))",
        "w, h = round(math.sqrt(area * aspect))",
        "tests/data/augment/test_erasing.py::test_rectangles_of_recorded_draws_are_upstream_s",
    ),
    fault(
        "options have no upper limit",
        "data/augment/common/options.py",
        "enough and value <= self.high",
        "enough",
        "tests/data/augment/test_steps.py::test_what_is_wrong_is_said_with_the_remedy",
    ),
    fault(
        "a clip that a list mirrors keeps its label",
        "data/datasets/kinetics.py",
        "geometries[0].flip != bool(sum(step.mirrored for step in drawn) % 2)",
        "geometries[0].flip",
        "tests/data/augment/test_samples.py::test_a_mirrored_clip_swaps_its_label_wherever_the_mirror_is_in_the_list",
    ),
]

SCHEDULES = [
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
        f"{SCHEDULES}/step.py",
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
        f"{SCHEDULES}/poly.py",
        "(1 - at.progress) ** optim.power",
        "(1 - at.progress)",
        f"{TEST_SCHEDULE}poly",
    ),
    fault(
        "cosine of the double angle",
        f"{SCHEDULES}/__init__.py",
        "math.cos(math.pi * progress)",
        "math.cos(2 * math.pi * progress)",
        f"{TEST_SCHEDULE}cosine",
    ),
]

WEIGHTS = [
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
]

SPECS = [
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
]

TASKS = [
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
        "return math.cos(math.pi - m2)",
        "return math.cos(m2)",
        f"{TEST_FACE}the_threshold_rule_of_arcface",
    ),
    fault(
        "the offset beyond the threshold has a cosine",
        "zoo/losses/face/combined.py",
        "return m2 * math.sin(math.pi - m2)",
        "return m2 * math.cos(math.pi - m2)",
        f"{MARGIN}target_logits_follow_the_formula",
    ),
    fault(
        "no label smoothing in spite of the setting",
        "zoo/tasks/classify.py",
        'Classification(loss_of("classify", settings))',
        'Classification(loss_of("classify", Settings()))',
        f"{TEST_CLASSIFY}the_objective",
    ),
    fault(
        "the fifth place does not count for top-5",
        "zoo/tasks/classify.py",
        "(rank < 5)",
        "(rank < 4)",
        f"{TEST_CLASSIFY}a_correct_a_top_five_and_a_wrong_prediction",
    ),
    fault(
        "the union counts the intersection twice",
        "zoo/tasks/segment.py",
        "union = labelled + predicted - correct",
        "union = labelled + predicted",
        f"{TEST_SEGMENT}an_example_by_hand",
    ),
    fault(
        "the weight of the auxiliary loss is not passed on",
        "zoo/tasks/segment.py",
        "replace(loss, **mining), settings.aux_weight)",
        "replace(loss, **mining), 0.4)",
        f"{OBJECTIVE}the_settings_reach_the_objective",
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

FAULTS = [*DATA, *SCHEDULES, *WEIGHTS, *SPECS, *TASKS]
