"""The command line: the verbs, each imported when it is used; what ends a command; and what
commands print and write: sentences in the width of the terminal, settings by the names of their
options, files that are never overwritten by accident.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import re
import shlex
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from srjt._version import __version__
from srjt.errors import Interrupted, SrjtError, printable, printable_lines, text_of
from srjt.process import STOPPED
from srjt.progress import Forwarding
from srjt.reports.flags import as_typed

if TYPE_CHECKING:
    import pandas as pd

    from srjt.reports.page import Page

# Standard output that is closed, full, ASCII-only, or read by a program that has exited.


def prepare_streams() -> None:
    """Make both streams writable with any text: file names may be any bytes, and a terminal may be
    ASCII-only.

    Without standard output (``>&-``) the first file that is opened would take its number, and
    prints would end there.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def colours_wanted() -> bool | None:
    """Whether to write in colours, by the environment; None: if the output is a terminal."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return None


# Sentences in the width of the terminal, warnings as sentences, and progress bars that leave no
# trace.

# a sentence, and the command at its end
COMMAND = re.compile(r"(.*?)(?:(?<=:) (srjt .*[^.]))?", re.DOTALL)


def is_terminal(*, err: bool) -> bool:
    """Whether standard output, or standard error, is a terminal."""
    return _proxied(sys.stderr if err else sys.stdout).isatty()


def _proxied(stream: TextIO) -> TextIO:
    """The stream itself, which rich replaces while it shows a bar; older versions of rich call that
    no terminal."""
    proxied: TextIO = getattr(stream, "rich_proxied_file", stream)
    return proxied


def say(text: str, *, before: str = "", err: bool = False, **style: Any) -> None:
    """Print a sentence: wrapped to the terminal's width, on one line in a file or pipe, where it is
    searched for.

    A line is broken at spaces only, so that a path stays in one piece, and a command at the end of
    a sentence gets a line of its own: both can be copied. before: what the sentence begins with
    ("srjt: "), which announces no command. style: as for ``typer.style``.
    """
    text = printable_lines(as_typed(text))  # before it is wrapped, so that each line fits
    if is_terminal(err=err):
        sentence, command = COMMAND.fullmatch(text).groups()  # type: ignore[union-attr]
        width = shutil.get_terminal_size().columns
        lines = []
        for line in f"{before}{sentence}".split("\n"):
            lines.append(textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False))
        if command:
            lines.append(f"  {command}")
        text = "\n".join(lines)
    else:
        text = f"{before}{text}"
    print_line(text, err=err, **style)


def print_line(text: str, *, err: bool = False, **style: Any) -> None:
    """Print text as it is, such as a command or a path to copy: the only way from here to the
    terminal.

    Names in it may come from a file that was sent: control characters, which would change the title
    of the terminal or turn the line around, are shown and not executed. style: as for
    ``typer.style``.
    """
    text = printable_lines(text)
    stream = sys.stderr if err else sys.stdout
    # through rich, so that the text goes above its bar and not into it; but not what is meant for a
    # file
    if not is_terminal(err=err):
        stream = _proxied(stream)
    typer.secho(text, file=stream, color=colours_wanted(), **style)


def show(page: Page, *, err: bool = False) -> None:
    """Print a page: verdict, key numbers, tables and the first notes."""
    from rich.text import Text

    from srjt.console import Console
    from srjt.reports.page import terminal

    console = Console(markup=False, highlight=False, stderr=err)
    for part in terminal(page):
        if isinstance(part, Text):
            say(
                part.plain,
                err=err,
                fg="yellow" if part.style == "yellow" else None,
                dim=part.style == "dim",
            )
        else:
            console.print(part)


def print_table(frame: pd.DataFrame, *, title: str = "", **options: Any) -> None:
    """Print a table. options: as for ``srjt.reports.table.data_table``."""
    from srjt.console import Console
    from srjt.reports.table import data_table

    Console(markup=False, highlight=False).print(data_table(frame, title=title, **options).rich())


@contextlib.contextmanager
def warnings_as_sentences() -> Iterator[None]:
    """Show each warning once, when it comes up (a training may take hours), without the line of
    code it came from."""
    shown: set[str] = set()

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, DeprecationWarning):  # of one library to another
            return
        text = text_of(message)
        if text not in shown:
            shown.add(text)
            say(printable(as_typed(text)), before="Warning: ", fg=typer.colors.YELLOW, err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


class OptionsReporter(Forwarding):
    """Shows the settings in the notes of a training as options of the command that runs."""

    def note(self, text: str) -> None:
        self.inner.note(as_typed(text))


# Writing files for the user: never over another one by accident, and with one sentence where it is
# not possible.


def check_outputs(out: Path | None, html: Path | None = None, *, force: bool = False) -> None:
    """An error if a file exists, or cannot be meant; to be called first, before an hour is spent. A
    pipe may exist."""
    from srjt.files import exists_already, is_stream

    if html is not None and html.is_dir():
        raise SrjtError(
            f"{html} is a folder. --html needs the name of a file.",
            code="wrong_file",
            option="html",
        )
    if html is not None and out is not None and html.absolute() == out.absolute():
        raise SrjtError(
            f"--html and --out name the same file, {html}. Give two names.",
            code="conflict",
            option="html",
        )
    for file in (out, html):
        if file is not None and file.is_file() and not force and not is_stream(file):
            raise exists_already(file)


WRITTEN = ("out", "html", "conflicts", "skipped")  # options that name a file to write
# of runs, audits, studies and readers, beside those that have a checksum
OWN_FILES = {
    "run.json",
    "weights.safetensors",
    "history.csv",
    "held_out.csv",
    "study.json",
    "splits.csv",
    "audit.json",
    "readers.json",
    "decisions.sqlite",
    "checksums.json",
}


def check_inputs_are_kept(given: Mapping[str, Any]) -> None:
    """Raise an error if a file to write is one that the command reads: ``--force`` is for earlier
    results.

    given: the values of all options and arguments, by name.
    """
    written = []
    read = []
    for name, values in given.items():
        for value in several(values):
            # some versions of typer convert to Path later than here
            if not isinstance(value, (str, Path)) or not os.path.exists(value):
                continue
            file = Path(value)
            if name not in WRITTEN:
                read.append(file)
            elif file.is_file():
                written.append(file)
    for file in written:
        if any(is_input(file, source) for source in read):
            raise SrjtError(
                f"{file} would be overwritten, but this command reads it. Choose another name.",
                code="file_exists",
            )
    skipped = given.get("skipped")
    listed = None if skipped is None else Path(skipped)
    if listed in written and given.get("on_bad_image") == "skip":
        with listed.open("rb") as rows:
            if not rows.readline().startswith(b"severity,kind,where"):
                raise SrjtError(
                    f"{listed} would be overwritten, but it is not a list of unusable samples."
                    " Choose another file with --skipped.",
                    code="file_exists",
                    option="skipped",
                )


def several(values: Any) -> Sequence[Any]:
    """The values of an option, which may be given several times."""
    if isinstance(values, (list, tuple)):
        return values
    return [values]


def is_input(file: Path, source: Path) -> bool:
    """Whether a file that exists is the source, or one of the files that a folder consists of."""
    from srjt.data.images.decode import IMAGE_SUFFIXES
    from srjt.files import read_checksums

    if not source.is_dir():
        return file.samefile(source)
    if not file.resolve().is_relative_to(source.resolve()):
        return False
    written_by_srjt = {*OWN_FILES, *read_checksums(file.parent)}
    return file.name in written_by_srjt or file.suffix.lower() in IMAGE_SUFFIXES


def finish(
    page: Page,
    *,
    out: Path | None,
    html: Path | None = None,
    err: bool = False,
    hide: set[str] | None = None,
) -> None:
    """Save the page if that is wanted, print it, and say where everything is.

    hide: names of samples and patients that the file leaves out, with all paths; None: nothing is
    left out.
    """
    from srjt.reports.page import leave_out_ids

    if html is not None:  # after the numbers, which are then not lost if the page cannot be written
        shown = page
        if hide is not None:
            shown = leave_out_ids(page, hide)
        shown.save(html)
    show(page, err=err)
    for file, words in ((out, "The results are in"), (html, "The page is in")):
        if file is not None:
            say(f"{words} {file}.", err=err)


def typed_command(verb: str) -> str | None:
    """The command as it was typed; None if the verb was called otherwise."""
    if sys.argv[1:2] != [verb]:
        return None
    return shlex.join(["srjt", *sys.argv[1:]])


# Groups of verbs: one that imports a verb when it is used, one in which the verb ``run`` may be
# left out.

# The verbs in the order of the help, with the first paragraph of each one's help: known without
# importing the verb.
SUMMARIES = {
    "analyse": (
        "Inspect, split, train, evaluate and audit with one command, and write one page about it."
    ),
    "train": "Train a classifier on images with ordinal labels that are partly wrong.",
    "predict": (
        "Predict the grades of new images, with probabilities and the disagreement of the two"
        " networks."
    ),
    "evaluate": "Evaluate a run: metrics with 95 % intervals, confusion matrix and calibration.",
    "compare": "Compare runs on the same images, with 95 % intervals of their differences.",
    "explain": "Show which parts of each image raise or lower its expected grade.",
    "audit": (
        "Estimate how many labels are wrong, and rank all labels by how likely each one is wrong."
    ),
    "readers": "Compare several readers, and combine their grades into one.",
    "review": "Review doubtful labels in the browser, and export the corrected table.",
    "study": "Compare methods over noises and folds, as the paper does.",
    "plan": (
        "Compute how many patients, readings and verified labels a study needs for an interval of"
        " the wanted width."
    ),
    "report": ("Write the results of a study, a run or an audit as one self-contained HTML file."),
    "data": "Inspect, check, split and corrupt data; make or download a data set.",
    "features": "Compute features of images with a frozen network, to train on them later.",
    "export": "Export a run to one ONNX file, with its cropping, normalisation and all networks.",
    "weights": "List pretrained weights, and download them for machines without a connection.",
    "methods": (
        "List the methods, with the loss that each one learns from and the settings that it needs."
    ),
    "doctor": (
        "Check versions, devices, the cache and extras, and say how to install what is missing."
    ),
    "demo": (
        "Show on synthetic images what wrong labels do and how srjt helps. It takes about a"
        " minute and a half."
    ),
}


# module: its verbs
MODULES = {
    "analyse": ("analyse",),
    "train": ("train", "features"),
    "predict": ("predict", "evaluate", "compare", "explain", "plan", "export"),
    "audit": ("audit",),
    "readers": ("readers",),
    "review": ("review",),
    "study": ("study", "report", "demo"),
    "data": ("data",),
    "doctor": ("doctor", "methods", "weights"),
}


NO_BREAK = "\u2011"  # a hyphen at which no line ends


def _unbroken(text: str) -> str:
    """A text in which lines do not end within an option."""
    return re.sub(r"(?<!\S)--\w[\w-]*", lambda flag: flag[0].replace("-", NO_BREAK), text)


class WholeOptions:
    """A verb or several, whose help breaks no option at the end of a line."""

    help: str | None

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        given = self.help
        self.help = _unbroken(given or "")
        super().format_help_text(ctx, formatter)  # type: ignore[misc]
        self.help = given

    def get_help(self, ctx: Any) -> str:
        return str(super().get_help(ctx)).replace(NO_BREAK, "-")  # type: ignore[misc]


class Command(WholeOptions, TyperCommand):
    """A verb, whose help lists its options in groups."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        for one in self.params:
            values = ctx.params.get(one.name)
            for value in several(values):
                # arrays would fail later, and less clearly
                if type(value) is int and abs(value) >= 2**63:
                    flag = max(one.opts, key=len)
                    raise SrjtError(
                        f"{flag} is too large: it must be smaller than 2**63.",
                        code="out_of_bounds",
                        option=one.name or "",
                    )
        check_inputs_are_kept(ctx.params)
        return rest

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for one in self.get_params(ctx):
            if record := one.get_help_record(ctx):  # None if the option is hidden
                usual = "Arguments" if one.param_type_name == "argument" else "Options"
                group = groups.setdefault(getattr(one, "rich_help_panel", None) or usual, [])
                group.append((record[0], _unbroken(record[1])))
        for title, rows in groups.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class App(typer.Typer):
    """Commands whose help is drawn by typer as plain text: rich would take longer than all the rest
    of it."""

    def __init__(self, *verbs: Any, add_completion: bool = False, **settings: Any) -> None:
        super().__init__(
            rich_markup_mode=None,
            pretty_exceptions_enable=False,
            add_completion=add_completion,
            no_args_is_help=True,
            **settings,
        )
        for verb in verbs:
            from srjt.cli.options import expand  # the help of all verbs does without

            summary = " ".join(verb.__doc__.partition("\n\n")[0].split())
            self.command(verb.__name__.rstrip("_"), cls=Command, short_help=summary)(expand(verb))


def _imported(words: Sequence[str]) -> list[str]:
    """The modules that ``--import`` names."""
    modules = []
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "--import":
            modules.append(following)
        elif word.startswith("--import="):
            modules.append(word.removeprefix("--import="))
    return modules


class LazyVerbs(TyperGroup):
    """The verbs of SUMMARIES. The module of a verb is imported when the verb is used."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, summary in SUMMARIES.items():
            self.add_command(Command(name, short_help=summary), name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in SUMMARIES:
            modules = _imported(args)
            if modules:  # what they register may have options of its own
                from srjt.methods import import_modules

                import_modules(modules)
            self.load(args[0])
        return super().resolve_command(ctx, args)

    def load(self, name: str) -> None:
        """Replace the placeholder of a verb by the verb itself."""
        holder = next(module for module, verbs in MODULES.items() if name in verbs)
        module = importlib.import_module(f"srjt.cli.{holder}")
        verb = getattr(module, f"{name}_app", None)
        if verb is None:
            verb = App(getattr(module, name))
        self.commands[name] = typer.main.get_command(verb)
        self.commands[name].name = name


class RunByDefault(WholeOptions, TyperGroup):
    """``srjt study labels.csv …`` is ``srjt study run labels.csv …``, in messages and in the help,
    too."""

    @property
    def default_command(self) -> Any:
        return self.commands["run"]

    def make_context(
        self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        if args and args[0] not in {*self.commands, "-h", "--help"}:
            return self.default_command.make_context(info_name, args, parent=parent, **extra)
        return super().make_context(info_name, args, parent=parent, **extra)

    def format_usage(self, ctx: Any, formatter: Any) -> None:
        self.default_command.format_usage(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        self.default_command.format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


# what is wrong with a path that was given
UNUSABLE = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EACCES, errno.ELOOP)
TOO_MANY_FILES = (
    "Too many files are open. Raise the limit of this process, for example with ulimit -n 1024."
)
# what is wrong with a file that has no name: standard output
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)

app = App(
    name="srjt",
    cls=LazyVerbs,
    help="Learn severity from ordinal labels that are partly wrong.",
    add_completion=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print_line(f"srjt {__version__}")
        raise typer.Exit()


@app.callback()
def _options(
    version: bool = typer.Option(
        False,
        "--version",
        callback=_print_version,
        is_eager=True,
        help="Print the version and exit.",
    ),
) -> None:
    pass


def main() -> None:
    """Run ``srjt``; a problem with the input is one sentence on stderr and exit status 2."""
    prepare_streams()
    try:
        status = _run()
        sys.stdout.flush()
    except Interrupted as stopped:
        say(f"{stopped} Run the same command again to resume.", before="srjt: ", err=True)
        status = stopped.status
    except KeyboardInterrupt:
        say(STOPPED, before="srjt: ", err=True)
        status = 130
    except BrokenPipeError:  # the reader (head, less) went away: not our failure
        status = 141
    except (SrjtError, MemoryError, OSError, ImportError, RuntimeError) as problem:
        sentence = _explained(problem)
        if sentence is None or os.environ.get("SRJT_TRACEBACK"):
            raise
        say(sentence, before="srjt: ", fg=typer.colors.RED, err=True)
        status = 2
    try:
        sys.stdout.flush()
    except OSError:
        # what is left goes nowhere, so that Python does not try again, and complain, when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


def _explained(problem: Exception) -> str | None:
    """What the user can do something about, as a sentence; None for an error of the program."""
    if isinstance(problem, SrjtError):
        return problem.message
    if isinstance(problem, MemoryError):
        reason = str(problem).rstrip(".")
        if not reason:
            return "There is not enough memory."
        return f"There is not enough memory ({reason})."
    if isinstance(problem, OSError) and problem.errno in (errno.EMFILE, errno.ENFILE):
        return TOO_MANY_FILES
    if isinstance(problem, ImportError) and os.strerror(errno.EMFILE) in str(problem):
        return TOO_MANY_FILES
    if isinstance(problem, RuntimeError) and str(problem).startswith("Symlink loop"):
        # Python older than 3.13
        return f"{printable(problem)}: the link leads to itself."
    if not isinstance(problem, OSError):
        return None
    if problem.filename is None and problem.errno in FULL:
        return f"Standard output cannot be written: {problem.strerror}."
    if problem.filename is not None and problem.errno in UNUSABLE:
        return f"{printable(os.fsdecode(problem.filename))} cannot be used: {problem.strerror}."
    return None


def _run() -> Any:
    """Run the command and return its exit status."""
    try:
        with warnings_as_sentences():
            app(color=colours_wanted())
    except SystemExit as left:
        if isinstance(left.__context__, BrokenPipeError):  # typer and rich exit with 1 there
            raise left.__context__ from None
        if left.code == 130:  # typer has caught it
            raise KeyboardInterrupt from None
        return left.code
    return 0
