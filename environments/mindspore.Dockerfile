# MindSpore on NVIDIA GPUs, from environments/mindspore.lock. Needs a driver for CUDA 11 or later and the NVIDIA
# Container Toolkit on the host; the CUDA libraries are NVIDIA's Python packages. From the folder of the project:
#   docker build -f environments/mindspore.Dockerfile -t vision-zoo:mindspore .
FROM python:3.11.14-slim-bookworm

# The ssh server is for mpirun across pods (MPIJob). It has to accept keys in a folder that Kubernetes mounts, and its
# clients have to accept hosts that they have never seen. MindSpore is linked with libgomp. Debian does not keep older
# versions of a package.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 openssh-client openssh-server \
    && rm -rf /var/lib/apt/lists/* \
    && mkdir -p /run/sshd \
    && echo "StrictModes no" > /etc/ssh/sshd_config.d/cluster.conf \
    && printf 'Host *\n    StrictHostKeyChecking no\n    UserKnownHostsFile /dev/null\n' > /etc/ssh/ssh_config.d/cluster.conf

ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /opt/vision-zoo

COPY environments/mindspore.lock environments/mindspore.lock
RUN pip install --no-cache-dir --require-hashes --no-deps -r environments/mindspore.lock

COPY . .
RUN pip install --no-cache-dir --no-deps --no-build-isolation --editable .
CMD ["bash"]
