"""Faults in data and augmentations, which all frameworks have in common."""

from functools import partial

from tests.mutants.fault import SHARED, Fault

ORDER = "data/order.py"
STREAM = "data/stream.py"
BATCH = "data/batch.py"
SAMPLING = "data/transforms/frame_sampling.py"
CLIPS = "data/transforms/clips.py"
PIXELS = "data/transforms/pixels.py"
CROPS = "data/transforms/crops.py"
PHOTOMETRIC = "data/transforms/photometric.py"
SEGMENTATION = "data/datasets/segmentation.py"
MIXING = "data/mixing.py"
PIPELINE = "data/augment/common/pipeline.py"
POLICIES = "data/augment/common/policies.py"

TEST_STREAM = "tests/data/test_stream.py::test_"
TEST_SAMPLING = "tests/data/transforms/test_frame_sampling.py::test_"
TEST_CLIPS = "tests/data/transforms/test_clips.py::test_"
TEST_CROPS = "tests/data/transforms/test_crops.py::test_"
TEST_SEGMENTATION = "tests/data/datasets/test_segmentation.py::test_"

fault = partial(Fault, SHARED)

FAULTS = [
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
        "start = (number * self.world_size + self.rank) * self.batch_size\n        positions",
        "start = number * self.world_size * self.batch_size\n        positions",
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
        "order.generators(self.seed, mask.name, positions)",
        'order.generators(self.seed, mask.name, [int(sample["label"]) for sample in samples])',
        f"{TEST_STREAM}dropout_masks_are_a_function_of_the_position_alone",
    ),
    fault(
        "an evaluation drops the last batch",
        STREAM,
        "-(-len(self.dataset) // (self.batch_size * self.world_size))",
        "len(self.dataset) // (self.batch_size * self.world_size)",
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
        "data/fields.py",
        "value < self.high if self.below else value <= self.high",
        "True",
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
