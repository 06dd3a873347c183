#!/usr/bin/env bash
# Write all lock files anew from pyproject.toml: requirements/*.txt (CPUs) and environments/*.lock (GPUs). Needs uv.
# Each is for Linux on x86-64 and ARM, and for Python 3.11 to 3.13: lines that are not for all have a marker.
# torch-cpu.txt and torchvision-cpu.txt, CPU builds from PyTorch's own index (190 MB instead of 3 GB), and card.txt, for
# tests/card, are written by hand.
set -euo pipefail
cd "$(dirname "$0")/.."
torch=2.13.0
jax=0.6.2  # newer ones need numpy 2, which MindSpore has not
compile() {  # extras, options of uv ...
    local options=() extra
    for extra in $1; do options+=(--extra "$extra"); done
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate "${options[@]}" "${@:2}" \
        pyproject.toml requirements/build.in
}
lock_cpu() {  # output, extras, options of uv ...
    # shellcheck disable=SC2086
    compile "$2" "${@:3}" --output-file "$1" --constraint <(echo "torch==$torch+cpu"; echo "jax==$jax") --no-emit-package torch \
        --no-emit-package torchvision --index-strategy unsafe-best-match \
        ${TORCH_SOURCE:---extra-index-url https://download.pytorch.org/whl/cpu}
}
lock_gpu() {  # framework, extras ...: from PyPI; what requirements/all.txt has, too, has the same version
    compile "${*:2} data nvimgcodec decord plot gpu test" --output-file "environments/$1.lock" \
        --constraint requirements/all.txt --constraint <(echo "torch==$torch")
}
lock_cpu requirements/all.txt "torch data nvimgcodec decord plot paddle mindspore jax dali export gpu dev"
lock_cpu requirements/torch.txt "torch data plot" --constraint requirements/all.txt
lock_gpu torch torch dali peers
lock_gpu paddle paddle-gpu
lock_gpu mindspore mindspore cuda11
lock_gpu jax jax-gpu dali
uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
    --constraint requirements/all.txt --output-file requirements/docs.txt requirements/docs.in
# Linux, the two processors and the versions of Python are what all lines are for: only what is narrower stays.
sed -i -E "s/ and \(\(platform_machine[^)]*\) or \([^)]*\)\)//; s/ and sys_platform == 'linux'//; \
    s/python_full_version < '3.14' and //; s/ ; python_full_version < '3.14'//" requirements/*.txt environments/*.lock
