# Not tested: nobody has built it yet.
# docker build --tag srjt .                                   # for a CPU
# docker build --build-arg TORCH=cu128 --tag srjt:gpu .       # for NVIDIA GPUs
# docker run --rm -v "$PWD:/data" srjt train labels.csv --fold 0 --out runs/mine
FROM python:3.12-slim

# the builds of PyTorch: cpu, cu126, cu128, …
ARG TORCH=cpu
ARG EXTRAS=onnx,dicom,parquet,excel

ENV PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PYTHONUNBUFFERED=1 SRJT_CACHE=/cache

# torch alone first: it is large and changes rarely
RUN pip install "torch>=2.8,<2.14" --index-url https://download.pytorch.org/whl/${TORCH}

COPY pyproject.toml README.md LICENSE /srjt/
COPY src /srjt/src
RUN pip install "/srjt[${EXTRAS}]"

# any user may run it: docker run --user "$(id -u):$(id -g)" …
RUN mkdir -m 1777 /cache
VOLUME /cache
WORKDIR /data
ENTRYPOINT ["srjt"]
CMD ["--help"]
