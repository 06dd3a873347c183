"""Faults in the check of the data before a run, which would let a wrong set of classes be trained on."""

from functools import partial

from tests.mutants.fault import SHARED, Fault

AUDIT, TEST_AUDIT = "data/audit.py", "tests/data/test_audit.py::test_"
TEST_RUN = "tests/zoo/run/test_data_check.py::test_"

fault = partial(Fault, SHARED)

FAULTS = [
    fault(
        "classes of the validation split alone pass",
        AUDIT,
        "for here, there in ((1, 0), (0, 1)):",
        "for here, there in ((0, 1),):",
        f"{TEST_AUDIT}a_class_of_one_split",
    ),
    fault(
        "classes without any sample pass",
        AUDIT,
        "np.flatnonzero(~has[0] & ~has[1])",
        "np.flatnonzero(has[0] & ~has[0])",
        f"{TEST_AUDIT}a_stray_label_of_a_list",
    ),
    fault(
        "the first label beyond the classes passes",
        AUDIT,
        "np.flatnonzero(inventory.labels >= count)",
        "np.flatnonzero(inventory.labels > count)",
        f"{TEST_AUDIT}labels_of_a_small_pack_of_faces",
    ),
    fault(
        "missing classes pass without the key",
        AUDIT,
        "if problems and not allowed_by:",
        "if problems and allowed_by is None:",
        f"{TEST_AUDIT}many_problems_are_cut_short",
    ),
    fault(
        "a gap in the labels of faces passes",
        "data/datasets/faces.py",
        "    if label == following:\n",
        "    if label >= following:\n",
        f"{TEST_AUDIT}a_stray_label_of_a_list_of_faces",
    ),
    fault(
        "a class may be missing from the masks that were not read",
        "data/datasets/cityscapes.py",
        "if len(of_masks) == len(pairs) else None",
        "if of_masks else None",
        f"{TEST_AUDIT}a_class_that_no_mask_shows",
    ),
    fault(
        "files of the same name and size are copies",
        AUDIT,
        "if digests[other] == content:",
        "if digests[other]:",
        f"{TEST_AUDIT}equal_names_and_sizes_are_no_copies",
    ),
    fault(
        "copies need the same name with --deep too",
        AUDIT,
        'key = "" if deep else _base_name(train, index), train.size(index)',
        "key = _base_name(train, index), train.size(index)",
        f"{TEST_AUDIT}a_copy_with_another_name_needs_deep",
    ),
    fault(
        "empty files pass",
        AUDIT,
        "(sizes >= 0) & (sizes < limit)",
        "(sizes > 0) & (sizes < limit)",
        f"{TEST_AUDIT}missing_and_tiny_files",
    ),
    fault(
        "every rank checks the data",
        "zoo/run/job.py",
        "if group.rank == 0:",
        "if group.rank >= 0:",
        f"{TEST_RUN}rank_0_checks_and_the_others_wait_with_a_limit",
    ),
    fault(
        "the data are not checked",
        "zoo/run/job.py",
        "audit_data(group, cfg.data, train_set, val_set, request.eval_only)",
        "DataCheck()",
        f"{TEST_RUN}no_task_starts_with_wrong_classes[image-empty_class]",
    ),
    fault(
        "lists are not looked for in the root",
        "data/datasets/common.py",
        "for path in (given, in_root):",
        "for path in (given,):",
        "tests/data/datasets/test_imagenet.py::test_lists_and_names_are_looked_for_in_the_root_too",
    ),
]
