"""``srjt.train``: choose the samples, replace ``noise_rate="auto"`` by an estimate of the noise of
the labels, then train one run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srjt.data.grades import Grades
from srjt.data.images.decode import OnBadImage
from srjt.data.images.feed import FeedCache
from srjt.data.manifest import Manifest, drop_unusable
from srjt.data.sources import LabelledData, labelled_samples
from srjt.data.splits import Split
from srjt.errors import SrjtError, warn
from srjt.files import write_atomically
from srjt.progress import Reporter
from srjt.training import folder as run_folder, single_run as one_run
from srjt.training.batches import Transform
from srjt.training.choose_head import choose_head
from srjt.training.config import TrainConfig
from srjt.training.devices import choose_device, refuse_bf16_on_cpu
from srjt.training.frozen import lacks_weights, resolve_backbone
from srjt.training.keywords import TrainSettings
from srjt.training.noise_rate import check_settings, noise_record, resolve_noise_rate
from srjt.training.reporters import reporter_in_python
from srjt.training.sides import no_validation_side, resolved_once
from srjt.training.trained import (
    NetworkMaker,
    Setup,
    SplitChoice,
    Trained,
    fetch_weights,
)

if TYPE_CHECKING:  # Python 3.10 has no Unpack
    from typing_extensions import Unpack

# Arguments of an earlier version, which only the command line and studies need; remove them after
# the next release.
_FORMER_ARGUMENTS = ("command", "feeds", "shared_estimate")

# ``srjt.train``: resolve what is "auto", then train one run.


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
    grade_names: Mapping[str, str] | None = None,
    **settings: Unpack[TrainSettings],
) -> Trained:
    """Train a classifier on images, or features, with ordinal labels that are partly wrong.

    The same settings, data and machine give the same weights, also if the training is interrupted
    and resumed.

    Parameters
    ----------
    data : Manifest, path, DataFrame, pair of arrays, or torch dataset
        The samples: ``srjt.data.read(path)`` or what it reads; (images, grades); or a map-style
        dataset that returns (image, label), which is read into memory once, so that its random
        transforms are drawn once.
    out : path, optional
        Folder of the run. An unfinished run of the same configuration in it is resumed, a finished
        one is opened. Without it nothing is written.
    split : Split, callable or "all", optional
        Row positions of ``data``, or a function that makes the split from the manifest that remains
        after unreadable images were skipped. ``split.train`` is trained on; the other sides are
        evaluated after every epoch: validation against the given labels, test against the true
        grades where they are known. "all": train on all samples. Default: the split column of the
        data, as ``srjt train`` does; all samples if there is none. A ``LeakageWarning`` is issued
        if a patient or an identical image is on two sides.
    network : str or callable, optional
        A name (see ``srjt.networks.names()``), or a function without arguments that returns a new
        module from images (or rows of features) to features (B, F). Default: ``resnet18`` for
        images. For features ``mlp``, or for srjt ``auto``: ``odds`` or ``mlp``, whichever makes
        held-out labels likelier.
    transform, eval_transform : callable, optional
        Your own augmentation and evaluation transform, from uint8 (B, 3, H, W) on the device to
        float, in place of the random crop and flip, and of the centre crop.
    device : str, optional
        ``"cpu"``, ``"cuda"`` or ``"cuda:1"``. Default: a GPU if there is one.
    progress : bool
        Show a bar: on standard error if it is a terminal, or below the cell of a notebook. Nothing
        is shown elsewhere.
    reporter : Reporter, optional
        Receives the progress instead.
    config : TrainConfig, optional
        Settings as an object. Default: the paper's.
    cache : path, optional
        Folder for decoded images. Default: ``$SRJT_CACHE``, or the user's cache folder.
    on_bad_image : {"error", "skip"}
        Stop at an unreadable image, or leave it out and list it in ``Trained.skipped``.
    grade_names : mapping of str to str, optional
        Grade → its name for people, such as ``{"0": "none", "1": "doubtful"}``; kept with the run
        and shown beside the grades. All grades are named, or none.
    **settings
        Any field of ``TrainConfig``; these override ``config``. With ``noise_rate="auto"`` the
        noise is estimated first, from the training side alone.

    Returns
    -------
    Run
        The networks, every metric of every epoch, and the history of every training sample
        (``Trained``), with ``summary()``, ``scores``, ``plot()``, ``predict(data)`` and more.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=60, patients=12, size=32)
    >>> settings = {"network": "tiny", "image_size": 32, "crop": 28, "epochs": 1}
    >>> run = srjt.train(data, split=srjt.data.folds(data)[0], noise_rate=0.2, **settings)
    >>> list(run.scores.loc["test"].index)
    ['mae', 'accuracy', 'macro_f1', 'qwk']
    """
    changes: dict[str, Any] = {**settings}
    internal = _former_arguments(changes)
    feeds = internal.pop("feeds", None) or FeedCache()
    _check_split(split)
    if out is not None:
        run_folder.refuse_other_files(Path(out))  # before anything is read or written
    data = labelled_samples(data, on_bad_image=on_bad_image, progress=progress and reporter is None)
    if isinstance(network, str):
        changes["network"] = network
        network = None
    requested = (config or TrainConfig()).replace(**changes)
    with reporter_in_python(reporter, progress=progress) as watching:
        setup = Setup(
            split=split,
            network=network,
            transform=transform,
            eval_transform=eval_transform,
            device=device,
            cache=cache,
            on_bad_image=on_bad_image,
            feeds=feeds,
            reporter=watching,
        )
        return train_from_config(
            data, requested, setup=setup, out=out, grade_names=grade_names, **internal
        )


def train_from_config(
    data: Manifest,
    requested: TrainConfig,
    *,
    setup: Setup,
    out: str | Path | None = None,
    grade_names: Mapping[str, str] | None = None,
    command: str | None = None,
    shared_estimate: Path | None = None,
) -> Trained:
    """Train one run, as ``train`` does, for the command line and the runs of a study.

    command: that started the run, for its record. shared_estimate: folder in which several runs
    share one noise estimate.
    """
    # errors before images are decoded
    if out is not None:
        run_folder.refuse_other_files(Path(out))
    data = drop_unusable(data, on_bad_image=setup.on_bad_image)
    names = Grades(data.grades, grade_names).names
    check_settings(requested.with_recipe())
    refuse_bf16_on_cpu(requested.precision, choose_device(setup.device))
    _check_validation_side(requested, setup.split, data)
    setup = replace(setup, split=resolved_once(setup.split, samples=len(data)))
    as_given = requested
    before = None
    if out is not None and (Path(out) / "run.json").exists():
        before = run_folder.read_facts(Path(out)).config
    requested = resolve_backbone(
        as_given, features=data.are_features, note=setup.reporter.note, before=before
    )
    if out is None or not run_folder.is_finished(Path(out)):
        fetch_weights(requested, setup, features=data.are_features)
    shared = shared_estimate or out
    head = choose_head(data, config=requested, setup=setup, out=shared)
    config, estimate = resolve_noise_rate(
        data, config=head.config, setup=setup, out=shared, fitted=head.fitted
    )
    if shared_estimate is not None and out is not None:
        made = {"noise.json": estimate is not None, "head.json": head.held_out is not None}
        _copy_made(made, shared_estimate, Path(out))
    config = config.for_data(features=data.are_features, samples=len(data))
    setup.reporter.begin(config.method, epochs=config.epochs)
    run = one_run.single_run(
        data,
        config=config,
        setup=setup,
        out=out,
        origin=one_run.Origin(
            noise=noise_record(requested, config, estimate),
            head=head.held_out,
            weights_missing=lacks_weights(as_given, requested, features=data.are_features),
            command=command,
            grade_names=names,
        ),
    )
    return replace(run, noise_estimate=estimate)


def _former_arguments(settings: dict[str, Any]) -> dict[str, Any]:
    """Take the arguments of an earlier version out of the settings, with a warning for each."""
    given = {name: settings.pop(name) for name in _FORMER_ARGUMENTS if name in settings}
    for name in given:
        warn(
            f"The argument {name} of srjt.train will be removed in the next release: leave it out.",
            FutureWarning,
        )
    return given


def _check_validation_side(requested: TrainConfig, split: SplitChoice, data: Manifest) -> None:
    """Raise an error if the best epoch is wanted, and no side could tell which it is."""
    undivided = split is None and "split" not in data.table
    if requested.keep == "best" and (undivided or split == "all"):
        raise no_validation_side()


def _check_split(split: SplitChoice) -> None:
    """Refuse what is no split."""
    if not (split is None or split == "all" or callable(split) or isinstance(split, Split)):
        raise SrjtError(
            "split takes a Split, a function that makes one from the data, or 'all', not"
            f" {split!r}: the first of five folds is split=srjt.data.folds(data)[0].",
            code="wrong_type",
            option="split",
        )


def _copy_made(made: Mapping[str, bool], shared: Path, folder: Path) -> None:
    """Copy what runs of a study share to the folder of one run. made: whether a file is used."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, used in made.items():
        if used:
            write_atomically(folder / name, (shared / name).read_bytes())
