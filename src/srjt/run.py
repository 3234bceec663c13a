"""A trained run with what one does next: summary, plot, predict, evaluate, explain, export.

``srjt.train`` and ``srjt.load_run`` return it. They are the functions of ``srjt.training``, which
know nothing of tables and figures; what they return is dressed here.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec

import pandas as pd

from srjt.data.images.feed import Samples
from srjt.errors import SrjtError
from srjt.files import read_checksums, write_atomically, write_checksums
from srjt.hub import HUB_MODEL, HUB_SAMPLES, upload_run
from srjt.inference.calibrated_run import RunLike
from srjt.inference.evaluate import Evaluation, best_side, evaluate, evaluate_sides
from srjt.inference.explain import explain
from srjt.inference.export import Exported, export_file
from srjt.inference.predict import predict
from srjt.notebook import HasPage
from srjt.ordinal import Purpose
from srjt.ordinal.decoding import Decoding
from srjt.ordinal.metrics import MAIN
from srjt.settings import with_former_names
from srjt.training import train as training, trained
from srjt.training.folder import read_facts, write_facts
from srjt.training.trained import Trained

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from srjt.reports.page import Page


P = ParamSpec("P")


@with_former_names
def export(
    run: RunLike,
    path: str | os.PathLike[str],
    *,
    format: Literal["onnx", "torch.export", "folder"] | None = None,
    samples: Samples | None = None,
    target_metric: Purpose | None = None,
    decoding: Decoding | None = None,
    recalibrate: bool = True,
    overwrite: bool = False,
) -> Exported:
    """Write a run for programs without srjt: as one file, or as a folder to send.

    A file contains the preprocessing (without resizing), all networks, and what makes grades of
    their outputs. Its input is ``images``, uint8 (N, H, W, 3) RGB of the run's image size, or
    ``features``, float32 (N, F). The outputs are ``probabilities`` (N, C), ``grade`` (N,) int64 and
    ``severity`` (N,) float. N is dynamic.

    A folder contains ``model.onnx``, ``MODEL_CARD.md``, ``config.json``, and ``predict.py``, which
    predicts with onnxruntime, NumPy and Pillow alone; ``requirements.txt`` lists them.

    Parameters
    ----------
    run : Trained or path
        A trained run, or the path of its folder.
    path : path
        What to write. It is written only if its probabilities differ from those of the run by at
        most 1e-4.
    format : {"onnx", "torch.export", "folder"}, optional
        Default: from the suffix of ``path``, ``.onnx`` or ``.pt2``; a folder if there is none.
    samples : ndarray, optional
        Samples to check the model with, in the shape of its input. Default: a few synthetic images,
        or random features.
    target_metric : {"mae", "accuracy", "qwk", "macro_f1"}, optional
        The metric that the grades are for, as for ``srjt.predict``. Default: that of the run.
    decoding : {"argmax", "median", "expected"}, optional
        The most likely grade, the median, or the rounded mean, whatever the metric.
    recalibrate : bool
        Recalibrate the probabilities as ``srjt.predict`` does, inside the model.
    overwrite : bool
        Write into a folder that is not empty; files with other names stay. A file is replaced.

    Returns
    -------
    Exported
        The path, the input and the metadata of the model, and how well it agrees with the run.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=60, patients=12, size=32)
    >>> settings = {"network": "tiny", "image_size": 32, "crop": 28, "epochs": 1, "noise_rate": 0.2}
    >>> run = srjt.train(data, **settings)
    >>> srjt.export(run, "model.pt2").input
    'images uint8 (N, 32, 32, 3)'
    >>> srjt.export(run, "to_send")  # doctest: +SKIP
    """
    options: dict[str, Any] = {
        "samples": samples,
        "target_metric": target_metric,
        "decoding": decoding,
        "recalibrate": recalibrate,
    }
    if format == "folder" or (format is None and not Path(path).suffix):
        from srjt.reports.model_card import export_folder  # figures take a while to import

        return export_folder(run, path, overwrite=overwrite, **options)
    return export_file(run, Path(path), format=format, **options)


@dataclass(frozen=True, kw_only=True, repr=False)
class Run(Trained, HasPage):
    """A trained run. It has the attributes of ``Trained`` and these methods.

    ``run.predict(data, …)``, ``run.evaluate(data, …)``, ``run.explain(data, …)`` and
    ``run.export(path, …)`` are ``srjt.predict(run, data, …)`` and so on, with the same options.

    Examples
    --------
    >>> import srjt
    >>> data = srjt.data.synthetic.generate(images=60, patients=12, size=32)
    >>> settings = {"network": "tiny", "image_size": 32, "crop": 28, "epochs": 1, "noise_rate": 0.2}
    >>> run = srjt.train(data, split=srjt.data.folds(data)[0], **settings)
    >>> list(run.scores.loc["test"].index)
    ['mae', 'accuracy', 'macro_f1', 'qwk']
    >>> len(run.predict(data))
    60
    """

    predict = predict
    evaluate = evaluate
    explain = explain
    export = export

    @property
    def scores(self) -> pd.DataFrame:
        """The scores on the held-out sides, as ``predict`` answers.

        Returns
        -------
        DataFrame
            Rows (side, metric): mae, accuracy, macro_f1 and qwk of the test and the validation
            side. Columns: ``value``, ``low`` and ``high`` (95 % interval) and ``naive``, the score
            of one grade for all samples. The test side is compared with the true grades where they
            are known.
        """
        rows = {}
        for name, side in self._sides.items():
            for metric in MAIN:
                naive = getattr(side.naive, metric, math.nan)  # also if there is none
                rows[name, metric] = (*side.intervals[metric], naive)
        index = pd.MultiIndex.from_tuples(list(rows), names=["side", "metric"]) if rows else None
        return pd.DataFrame(
            list(rows.values()), index=index, columns=["value", "low", "high", "naive"]
        )

    def summary(self) -> Page:
        """The verdict and the key numbers: the page ``srjt.report(run)``.

        Returns
        -------
        srjt.reports.page.Page
            Print it, let a notebook show it, or ``save`` it as an HTML file.
        """
        from srjt.reports.pages.run import trained_page  # matplotlib takes a while

        return trained_page(self, self._sides)

    def plot(self) -> Figure:
        """Accuracy and mean absolute error per epoch, and the confusion matrix of the test side
        (else validation).

        The curves are those of the networks' own grades, averaged over the networks; the matrix, as
        ``scores``, is of the answers of ``predict``, which decodes the mean of their probabilities.

        Returns
        -------
        matplotlib.figure.Figure
            A notebook shows it; ``figure.savefig("run.png")`` writes it.
        """
        from srjt.reports.figures.results import run_overview  # matplotlib takes a while

        return run_overview(
            self.metrics,
            self._sides.get("test") or self._sides.get("validation"),
            grades=self.grades.shown,
            pooled=self.config.convention == "published-code",
        )

    def push_to_hub(self, repo: str, *, private: bool = True, samples: bool = False) -> str:
        """Upload the run to the Hugging Face Hub, with its model card; ``srjt.load_run`` opens it
        from there.

        Parameters
        ----------
        repo : str
            ``"owner/name"``; made if it does not exist. Sign in first, with ``hf auth login``.
        private : bool
            Whether only you can see it, if it is made now.
        samples : bool
            Also upload what the run knows of single samples: ids, image paths, patients and
            predictions. Without them probabilities cannot be recalibrated, and there are no ranges
            of grades.

        Returns
        -------
        str
            Its address, ``"hf://owner/name"``.

        Examples
        --------
        >>> import srjt
        >>> srjt.load_run("runs/mine").push_to_hub("me/mayo-score")  # doctest: +SKIP
        """
        from srjt.reports.model_card import model_card

        if self.folder is None:
            raise SrjtError(
                "Only a run in a folder can be uploaded: train with out=… to have one.",
                code="not_finished",
            )
        facts = read_facts(self.folder)
        if not samples:  # folders may name people
            made = {name: value for name, value in facts.provenance.items() if name != "command"}
            named = {}
            for name in ("source", "labels"):
                if (file := getattr(facts.data, name)) is not None:
                    named[name] = file.model_copy(update={"path": Path(file.path).name})
            facts = replace(facts, data=facts.data.model_copy(update=named), provenance=made)
        usage = f"```bash\nsrjt predict hf://{repo} SAMPLES --out predictions.csv\n```"
        with tempfile.TemporaryDirectory() as folder:
            for name in (*HUB_MODEL, *(HUB_SAMPLES if samples else ())):
                if (self.folder / name).exists():
                    shutil.copyfile(self.folder / name, Path(folder, name))
            write_facts(Path(folder), facts)
            write_checksums(Path(folder), read_checksums(self.folder))
            card = model_card(self.folder, sides=self._sides, usage=usage)
            write_atomically(Path(folder, "README.md"), card.encode("utf-8", "replace"))
            return upload_run(Path(folder), repo, private=private)

    @cached_property
    def _sides(self) -> dict[str, Evaluation]:
        return evaluate_sides(self) if self.held_out else {}

    def __repr__(self) -> str:
        side = best_side(self, resamples=0)  # without intervals, which take a while
        if side is None:
            return super().__repr__()
        accuracy = side.intervals["accuracy"].value
        mae = side.intervals["mae"].value
        return f"<Run: {self.describe()}; {side.side} accuracy {accuracy:.3f}, MAE {mae:.3f}>"


def _returns_run(function: Callable[P, Trained]) -> Callable[P, Run]:
    """The same function, with its signature and docstring; its result is a ``Run``."""

    @functools.wraps(function)
    def with_run(*args: P.args, **kwargs: P.kwargs) -> Run:
        plain = function(*args, **kwargs)
        return Run(**{field.name: getattr(plain, field.name) for field in fields(plain)})

    with_run.__signature__ = inspect.signature(function).replace(return_annotation=Run)  # type: ignore[attr-defined]
    return with_run


train = _returns_run(training.train)
load_run = _returns_run(trained.load_run)
