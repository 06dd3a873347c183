# PaddlePaddle on NVIDIA GPUs, from environments/paddle.lock. Needs a driver for CUDA 11.8 or later and the NVIDIA
# Container Toolkit on the host; the CUDA libraries are NVIDIA's Python packages. From the folder of the project:
#   docker build -f environments/paddle.Dockerfile -t vision-zoo:paddle .
# A tag may change: to build on one image for good, give its digest, --build-arg BASE=python@sha256:..., which
# `docker buildx imagetools inspect python:3.11.14-slim-bookworm` prints.
ARG BASE=python:3.11.14-slim-bookworm
FROM ${BASE}

# The ssh server is for mpirun across pods (MPIJob). It has to accept keys in a folder that Kubernetes mounts. Its
# clients accept pods, which are new in each job, without a check: who is in their network can pose as one. Keys of
# the server in a layer would be the same everywhere: each pod makes its own. Paddle is linked with libgomp. Debian does
# not keep older versions of a package.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 openssh-client openssh-server \
    && rm -rf /var/lib/apt/lists/* \
    && rm -f /etc/ssh/ssh_host_* \
    && mkdir -p /run/sshd \
    && echo "StrictModes no" > /etc/ssh/sshd_config.d/cluster.conf \
    && printf 'Host *-worker-*\n    StrictHostKeyChecking no\n    UserKnownHostsFile /dev/null\n' > /etc/ssh/ssh_config.d/cluster.conf

ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /opt/vision-zoo

COPY environments/paddle.lock environments/paddle.lock
RUN pip install --no-cache-dir --require-hashes --no-deps -r environments/paddle.lock

COPY . .
RUN pip install --no-cache-dir --no-deps --no-build-isolation --editable . \
    && python -m zoo.cuda_libraries \
    && python -c "import paddle"
CMD ["bash"]
