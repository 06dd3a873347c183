# PyTorch and DALI on NVIDIA GPUs, from environments/torch.lock. Needs a driver for CUDA 13 and the NVIDIA Container
# Toolkit on the host; the CUDA libraries come with PyTorch's package. From the folder of the project:
#   docker build -f environments/torch.Dockerfile -t vision-zoo:torch .
# A tag may change: to build on one image for good, give its digest, --build-arg BASE=python@sha256:..., which
# `docker buildx imagetools inspect python:3.11.14-slim-bookworm` prints.
ARG BASE=python:3.11.14-slim-bookworm
FROM ${BASE}

# The ssh server is for mpirun across pods (MPIJob). It has to accept keys in a folder that Kubernetes mounts. Its
# clients accept pods, which are new in each job, without a check: who is in their network can pose as one. Keys of
# the server in a layer would be the same everywhere: each pod makes its own. train.compile needs g++. Debian does not
# keep older versions of a package.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ openssh-client openssh-server \
    && rm -rf /var/lib/apt/lists/* \
    && rm -f /etc/ssh/ssh_host_* \
    && mkdir -p /run/sshd \
    && echo "StrictModes no" > /etc/ssh/sshd_config.d/cluster.conf \
    && printf 'Host *-worker-*\n    StrictHostKeyChecking no\n    UserKnownHostsFile /dev/null\n' > /etc/ssh/ssh_config.d/cluster.conf

ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility,video
WORKDIR /opt/vision-zoo

COPY environments/torch.lock environments/torch.lock
RUN pip install --no-cache-dir --require-hashes --no-deps -r environments/torch.lock

COPY . .
RUN pip install --no-cache-dir --no-deps --no-build-isolation --editable .
CMD ["bash"]
