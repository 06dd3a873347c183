# PyTorch and DALI on NVIDIA GPUs, from environments/torch.lock. Needs a driver for CUDA 13 and the NVIDIA Container
# Toolkit on the host; the CUDA libraries come with PyTorch's package. From the folder of the project:
#   docker build -f environments/torch.Dockerfile -t vision-zoo:torch .
FROM python:3.11.14-slim-bookworm

# The ssh server is for mpirun across pods (MPIJob). It has to accept keys in a folder that Kubernetes mounts, and its
# clients have to accept hosts that they have never seen. Debian does not keep older versions of a package.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openssh-client openssh-server \
    && rm -rf /var/lib/apt/lists/* \
    && mkdir -p /run/sshd \
    && echo "StrictModes no" > /etc/ssh/sshd_config.d/cluster.conf \
    && printf 'Host *\n    StrictHostKeyChecking no\n    UserKnownHostsFile /dev/null\n' > /etc/ssh/ssh_config.d/cluster.conf

ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility,video
WORKDIR /opt/vision-zoo

COPY environments/torch.lock environments/torch.lock
RUN pip install --no-cache-dir --require-hashes --no-deps -r environments/torch.lock

COPY . .
RUN pip install --no-cache-dir --no-deps --no-build-isolation --editable .
CMD ["bash"]
