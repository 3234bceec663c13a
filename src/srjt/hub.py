"""Runs on the Hugging Face Hub: ``hf://owner/name`` as a folder, and a folder as such a repository.

Only files of a run are downloaded, and nothing in them is executed: they are JSON, CSV and
safetensors.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from srjt.errors import SrjtError, missing_extra
from srjt.files import CHECKSUMS, cache_folder
from srjt.process import import_quietly
from srjt.text import printable, reason_of

HUB_MODEL = (CHECKSUMS, "run.json", "summary.json", "noise.json", "weights.safetensors")
# with ids, paths and patients
HUB_SAMPLES = (
    "held_out.csv",
    "history.csv",
    "skipped.csv",
    "image_hashes.npy",
    "training_traces.npz",
)
HUB_ADDRESS = re.compile(r"hf://(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")


def is_hub_address(folder: str | os.PathLike[str]) -> bool:
    """Whether it names a run on the Hub: ``hf://owner/name`` or ``hf://owner/name@revision``."""
    return os.fspath(folder).startswith("hf:/")


def fetch_run(address: str | os.PathLike[str]) -> Path:
    """The folder of the run at this address, in the cache; files that are there already are not
    downloaded again."""
    text = re.sub("^hf:/+", "hf://", os.fspath(address))  # Path drops a slash
    parts = HUB_ADDRESS.fullmatch(text)
    if parts is None:
        raise SrjtError(
            f"{printable(text)} is not the address of a run, hf://owner/name[@revision].",
            code="wrong_syntax",
        )
    repo = parts["repo"]
    revision = parts["revision"]
    folder = cache_folder() / "hub" / f"{repo}@{revision or 'main'}".replace("/", "--")
    _ask_hub(
        "snapshot_download",
        repo,
        repo_id=repo,
        revision=revision,
        local_dir=folder,
        allow_patterns=[*HUB_MODEL, *HUB_SAMPLES],
    )
    if not (folder / "run.json").exists():
        raise SrjtError(
            f"The repository {repo} holds no run: it has no run.json.", code="wrong_file"
        )
    return folder


def upload_run(folder: Path, repo: str, *, private: bool) -> str:
    """Upload a folder as the repository ``owner/name``, which is made if it does not exist; return
    its address."""
    if not HUB_ADDRESS.fullmatch(f"hf://{repo}"):
        raise SrjtError(
            f"{printable(repo)} is not the name of a repository: owner/name.", code="wrong_syntax"
        )
    _ask_hub("create_repo", repo, repo_id=repo, private=private, exist_ok=True)
    _ask_hub(
        "upload_folder", repo, repo_id=repo, folder_path=folder, commit_message="A run of srjt"
    )
    return f"hf://{repo}"


def _ask_hub(function: str, repo: str, **arguments: Any) -> None:
    try:
        huggingface_hub = import_quietly("huggingface_hub")
    except ImportError:
        raise missing_extra("huggingface_hub", "hub", "A run on the Hugging Face Hub") from None
    try:
        getattr(huggingface_hub, function)(**arguments)
    except (
        Exception
    ) as problem:  # no network, no such repository, no right to it: by version other errors
        raise SrjtError(
            f"The Hub cannot be used for {repo}: {printable(reason_of(problem))}.",
            code="unreachable",
        ) from problem
