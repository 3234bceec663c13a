"""``srjt.train``: resolve what is "auto", then train one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from srjt.data.grade_names import check_grade_names
from srjt.data.images.feed import FeedCache
from srjt.data.images.store import OnBadImage
from srjt.data.sources.inputs import LabelledData, labelled_samples
from srjt.errors import SrjtError
from srjt.files import write_atomically
from srjt.training.config import TrainConfig
from srjt.training.engine.batches import Transform
from srjt.training.engine.cpu_tuning import CpuSetting
from srjt.training.engine.devices import choose_device
from srjt.training.own_split import SplitChoice, has_own_split, resolved_once, split_or_own
from srjt.training.record.reporters import Reporter, reporter_in_python
from srjt.training.record.run_folder import is_finished, refuse_other_files
from srjt.training.resolve_noise import noise_record, resolve_noise_rate
from srjt.training.single_run import no_validation_side, single_run
from srjt.training.trained import NetworkMaker, Trained, fetch_weights

__all__ = ["train"]


def train(
    data: LabelledData,
    *,
    out: str | Path | None = None,
    split: SplitChoice = None,
    network: str | NetworkMaker | None = None,
    transform: Transform | None = None,
    eval_transform: Transform | None = None,
    device: str | None = None,
    progress: bool = True,
    reporter: Reporter | None = None,
    config: TrainConfig | None = None,
    cache: str | Path | None = None,
    on_bad_image: OnBadImage = "error",
    shared_estimate: Path | None = None,
    cpu_setting: CpuSetting | None = None,
    feeds: FeedCache | None = None,
    grade_names: Mapping[str, str] | None = None,
    command: str | None = None,
    **settings: Any,
) -> Trained:
    """Train a classifier on images, or features, with ordinal labels that are partly wrong.

    The same settings, data and machine give the same weights, also if the training is interrupted and resumed.

    Parameters
    ----------
    data : Manifest, Reading, path, DataFrame, pair of arrays, or torch dataset
        The samples: ``srjt.data.read(path)`` or what it reads; (images, grades); or a map-style dataset that returns
        (image, label), which is read into memory once, so that its random transforms are drawn once.
    out : path, optional
        Folder of the run. An unfinished run of the same configuration in it is resumed, a finished one is opened.
        Without it nothing is written.
    split : Split, callable or "all", optional
        Row positions of ``data``, or a function that makes the split from the manifest that remains after
        unreadable images were skipped. ``split.train`` is trained on; the other sides are evaluated after every
        epoch: validation against the given labels, test against the true grades where they are known. "all": train
        on all samples. Default: the split column of the data, as ``srjt train`` does; all samples if there is none.
    network : str or callable, optional
        A name (see ``srjt.networks.names()``), or a function without arguments that returns a new module from
        images (or rows of features) to features (B, F). Default: ``resnet18`` for images, ``mlp`` for features.
    transform, eval_transform : callable, optional
        Your own augmentation and evaluation transform, from uint8 (B, 3, H, W) on the device to float, in place of
        the random crop and flip, and of the centre crop.
    device : str, optional
        ``"cpu"``, ``"cuda"`` or ``"cuda:1"``. Default: a GPU if there is one.
    progress : bool
        Show a bar: on standard error if it is a terminal, or below the cell of a notebook. Nothing is shown elsewhere.
    reporter : Reporter, optional
        Receives the progress instead.
    config : TrainConfig, optional
        Settings as an object. Default: the paper's.
    cache : path, optional
        Folder for decoded images. Default: ``$SRJT_CACHE``, or the user's cache folder.
    on_bad_image : {"error", "skip"}
        Stop at an unreadable image, or leave it out and list it in ``Trained.skipped``.
    shared_estimate : path, optional
        Folder in which several runs share one noise estimate, as the runs of a study do.
    cpu_setting : CpuSetting, optional
        How the networks run on a CPU. Default: the fastest way, found by a short trial. A study chooses one for all
        its runs, because it changes the last bits of a result.
    feeds : FeedCache, optional
        Keeps the images on the GPU for the next training with the same images.
    grade_names : mapping of str to str, optional
        Grade → its name for people, such as ``{"0": "none", "1": "doubtful"}``; kept with the run and shown beside the
        grades. All grades are named, or none.
    command : str, optional
        The command that started the run, for its record.
    **settings
        Any field of ``TrainConfig``; these override ``config``. With ``noise_rate="auto"`` the noise is estimated
        first, from the training side alone.

    Returns
    -------
    Run
        The networks, every metric of every epoch, and the history of every training sample (``Trained``), with
        ``summary()``, ``scores``, ``plot()``, ``predict(data)`` and more.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=60, patients=12, size=32)
    >>> settings = {"network": "tiny", "image_size": 32, "crop": 28, "epochs": 1}
    >>> run = srjt.train(data, split=srjt.data.folds(data)[0], noise_rate=0.2, **settings)
    >>> list(run.scores.loc["test"].index)
    ['accuracy', 'mae', 'macro_f1', 'qwk']
    """
    sides = split_or_own(split)
    if not {"fold", "folds"}.isdisjoint(settings):
        raise SrjtError("A fold is given as a split: srjt.train(data, split=srjt.data.folds(data)[0]).")
    if out is not None:
        refuse_other_files(Path(out))  # before anything is read or written
    data = labelled_samples(data, on_bad_image=on_bad_image, progress=progress and reporter is None)
    if isinstance(network, str):
        settings["network"] = network
    inputs: dict[str, Any] = {
        "split": resolved_once(sides, samples=len(data)),
        "network": None if isinstance(network, str) else network,
        "transform": transform,
        "eval_transform": eval_transform,
        "device": device,
        "cache": cache,
        "on_bad_image": on_bad_image,
        "cpu_setting": cpu_setting,
        "feeds": feeds,
    }
    names = check_grade_names(grade_names or {}, data.grades)  # an error before images are decoded
    requested = (config or TrainConfig()).replace(**settings)
    choose_device(device)  # an error before images are decoded
    if requested.keep == "best" and (sides is None or (split is None and not has_own_split(data))):
        raise no_validation_side()
    fitted = None
    if out is None or not is_finished(Path(out)):
        fitted = fetch_weights(requested, network=inputs["network"], features=data.are_features)
    with reporter_in_python(reporter, progress=progress) as watching:
        if fitted is not None:
            watching.note(fitted)
        config, estimate = resolve_noise_rate(
            data,
            config=requested,
            out=shared_estimate or out,
            reporter=watching,
            **inputs,
        )
        if estimate is not None and shared_estimate is not None and out is not None:
            folder = Path(out)
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(
                folder / "noise.json", (shared_estimate / "noise.json").read_bytes(), follow_links=False
            )
        watching.begin(config.method, epochs=config.epochs)
        run = single_run(
            data,
            config=config,
            out=out,
            reporter=watching,
            noise=noise_record(requested, config, estimate),
            command=command,
            grade_names=names,
            **inputs,
        )
    return replace(run, noise_estimate=estimate)
