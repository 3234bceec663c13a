"""``srjt analyse``: inspect, split, train, evaluate and audit by one command, with one page at the
end."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from srjt.cli import OptionsReporter, options, print_line, say, show, typed_command
from srjt.cli.options import Fields, option
from srjt.progress import progress_bar

if TYPE_CHECKING:
    from srjt.data.manifest import Manifest

SHOWN = ("method", "network", "weights", "image_size", "crop", "epochs", "batch_size", "seed")


def analyse(
    out: Path = option(
        Path("analysis"),
        "Folder for all results; steps that are finished in it are not repeated.",
        metavar="DIR",
    ),
    *,
    settings: Annotated[dict[str, Any], options.settings_of_a_run(shown=SHOWN, panel="Training")],
    device: options.Device = None,
    quiet: options.Quiet = False,
    data: Annotated[options.Source, Fields(options.Source, without=("skipped",))],
) -> None:
    """Inspect, split, train, evaluate and audit with one command, and write one page about it.

    This runs srjt data inspect, data split, train, evaluate, compare and audit, one
    after the other. Without a GPU, the settings of --preset cpu are used. Run the
    same command again to resume after an interruption. The page, index.html in the
    folder, says what the data are, how good the model is, which labels may be
    wrong, what would help most, and which commands to run next.
    """
    from srjt.auditing.audit import DEFAULTS, with_noise_rate
    from srjt.cli.audit import label_file
    from srjt.cli.data import keep_options
    from srjt.data.inspection import inspect_source
    from srjt.files import write_atomically
    from srjt.reports.analysis import INDEX, Watching, analyse, audit_settings
    from srjt.reports.page import write_page
    from srjt.reports.pages.analysis import analysis_page, next_commands
    from srjt.training.noise_rate import check_settings
    from srjt.training.reporters import reporter_for

    with progress_bar("Reading images", not quiet) as progress:
        inspection = inspect_source(data.source, data.reading_options, progress=progress)
    given = _settings_for_this_machine(settings, inspection.manifest, quiet=quiet)
    config = options.layered_settings(given)
    check_settings(config.with_recipe())
    audit_config = with_noise_rate(
        options.layered_settings(audit_settings(given), defaults=DEFAULTS)
    )

    said: list[str] = []  # what one training says, the next does not repeat

    @contextlib.contextmanager
    def opened() -> Any:
        with reporter_for(quiet=quiet, notes=said) as reporter:
            yield OptionsReporter(reporter)

    def tell(text: str) -> None:
        if not quiet:
            say(text, bold=True)

    audited = None
    if inspection.graded:
        keep_options(inspection, data.on_bad_image)
        read = replace(data, **inspection.options)
        audited = label_file(inspection.manifest, read, command=typed_command("analyse"))
    done = analyse(
        inspection,
        out=out,
        config=config,
        audit_config=audit_config,
        watching=Watching(tell=tell, open=opened),
        on_bad_image=data.bad_images,
        device=device,
        labels=audited,
        command=typed_command("analyse"),
    )
    page = analysis_page(done)
    write_page(page, out / INDEX, write=write_atomically)
    if quiet:
        return
    show(page)
    say(f"The page is in {out / INDEX}.")
    for why, command in next_commands(done).items():
        say(f"{why}:")
        print_line(f"Next: {command}")


def _settings_for_this_machine(
    settings: dict[str, Any], manifest: Manifest, *, quiet: bool
) -> dict[str, Any]:
    """The given settings; without a GPU, those of ``--preset cpu`` below them."""
    given = dict(settings)
    small = options.machine_options(len(manifest), features=manifest.are_features)
    if small and "preset" not in given and "config" not in given:
        given["preset"] = "cpu"
        if "--method" in small:
            given.setdefault("method", small[small.index("--method") + 1])
        if not quiet:
            say("There is no GPU, so the settings of --preset cpu are used.", dim=True)
    return given
