#!/usr/bin/env bash
# Write all lock files anew from pyproject.toml: requirements/*.txt (CPUs) and environments/*.lock (GPUs). Needs uv.
# The torch of torch-cpu.txt is PyTorch's CPU build, which is 190 MB instead of 3 GB; its wheels are on PyTorch's own
# index, so it has a file of its own.
# requirements/card.txt, for tests/card, is written by hand.
set -euo pipefail
cd "$(dirname "$0")/.."
torch=2.13.0
compile() {  # extras, options of uv ...
    local options=() extra
    for extra in $1; do options+=(--extra "$extra"); done
    uv pip compile --quiet --python-version 3.11 --generate-hashes --no-header --no-annotate "${options[@]}" "${@:2}" \
        pyproject.toml requirements/build.in
}
lock_cpu() {  # output, extras ...
    # shellcheck disable=SC2086
    compile "${*:2}" --output-file "$1" --constraint <(echo "torch==$torch+cpu") --no-emit-package torch \
        --index-strategy unsafe-best-match ${TORCH_SOURCE:---extra-index-url https://download.pytorch.org/whl/cpu}
}
lock_gpu() {  # framework, extras ...: from PyPI; what requirements/all.txt has, too, has the same version
    compile "${*:2} data decord plot gpu test" --output-file "environments/$1.lock" \
        --constraint requirements/all.txt --constraint <(echo "torch==$torch")
}
lock_cpu requirements/torch.txt torch data plot
lock_cpu requirements/all.txt torch data decord plot paddle mindspore dali export gpu dev
lock_gpu torch torch dali peers
lock_gpu paddle paddle-gpu
lock_gpu mindspore mindspore cuda11
uv pip compile --quiet --python-version 3.11 --generate-hashes --no-header --no-annotate \
    --constraint requirements/all.txt --output-file requirements/docs.txt requirements/docs.in
