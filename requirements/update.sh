#!/usr/bin/env bash
# Write the lock files anew from the ranges of pyproject.toml. Needs uv. The torch of torch-cpu.txt is PyTorch's CPU
# build, which is 190 MB instead of 3 GB; its wheels are on PyTorch's own index, so it has a file of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
torch=2.13.0+cpu
lock() {  # output, extras ...
    local output=$1 extras=()
    shift
    for extra in "$@"; do extras+=(--extra "$extra"); done
    uv pip compile --quiet --python-version 3.11 --generate-hashes --no-header --no-annotate \
        --index-strategy unsafe-best-match ${TORCH_SOURCE:---extra-index-url https://download.pytorch.org/whl/cpu} \
        --constraint <(echo "torch==$torch") --no-emit-package torch "${extras[@]}" --output-file "$output" \
        pyproject.toml requirements/build.in
}
lock requirements/torch.txt torch data plot
lock requirements/all.txt torch data plot paddle mindspore dali gpu dev
