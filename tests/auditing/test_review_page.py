"""The review page in a real browser: fifty images by keyboard, undo, reload, kill -9, a second
tab."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import srjt
from browser import CONTRAST, Browser, Tab, needs_browser
from fixtures.audit_folders import make_audit
from fixtures.run_folders import edit_json
from srjt.auditing.folder import AuditFolder, read_audit
from srjt.auditing.review_log import Decisions, LogEntry

pytestmark = [pytest.mark.slow, needs_browser]

READY = "document.body.classList.contains('ready')"
SHOWN = "document.querySelector('#view > img')?.complete"


def visit(tab: Tab, address: str) -> Tab:
    tab.open(address)
    tab.wait(f"{READY} && ({SHOWN} || !document.querySelector('#finished').hidden)")
    return tab


def text(tab: Tab, selector: str) -> str:
    return str(tab.js(f"document.querySelector({json.dumps(selector)}).textContent"))


def shown_id(tab: Tab) -> str:
    """The id of the image shown."""
    facts = tab.js(
        "[...document.querySelectorAll('#facts div')].map((d) => [...d.children].map((e) => e.textContent))"
    )
    return str(dict(facts)["Id"])


def press(tab: Tab, key: str) -> None:
    """Press a key that decides, and wait until the page shows it as done."""
    tab.js("document.querySelector('#toast').textContent = ''")
    tab.wait(f"{SHOWN} || !document.querySelector('#placeholder').hidden")
    tab.press(key)
    tab.wait("document.querySelector('#toast').textContent")


def log(folder: Path) -> list[LogEntry]:
    store = Decisions(folder / "decisions.sqlite")
    found = store.log()
    store.close()
    return found


def present(folder: Path) -> dict[str, LogEntry]:
    store = Decisions(folder / "decisions.sqlite")
    found = {entry.id: entry for entry in store.current.all()}
    store.close()
    return found


def serious(tab: Tab) -> list[Any]:
    """Console messages, except the one that the browser writes about a response with status 409."""
    return [c for c in tab.complaints() if "409" not in json.dumps(c)]


def test_fifty_images_by_keyboard_undo_reload_kill_9(
    browser: Browser, serve: Any, tmp_path: Path
) -> None:
    folder = make_audit(tmp_path / "audit", images=56)
    audit: AuditFolder = read_audit(folder)
    served = serve(folder, "--reviewer", "anna", "--limit", 50)
    tab = visit(browser.tab(), served.address)
    assert tab.js("location.search").find("token") < 0
    assert text(tab, "#progress").startswith(
        "0 of 50 reviewed, 0 changed, estimated remaining noise "
    )
    wanted: dict[str, tuple[str, int]] = {}

    def decide(line: int) -> None:
        assert shown_id(tab) == audit.ids[line]
        key = ("Enter", "k", str((line + 1) % 4), "s")[line % 4 if line != 3 else 0]
        press(tab, key)
        label = int(audit.labels[line])
        enter = (
            "keep" if audit.suggested[line] == label else "accept"
        )  # one button where both agree
        action = {"Enter": enter, "k": "keep", "s": "skip"}.get(key, "set")
        grade = {"accept": int(audit.suggested[line]), "set": (line + 1) % 4}.get(action, label)
        wanted[audit.ids[line]] = (action, grade)
        assert len(log(folder)) >= len(wanted)  # on disk before it was shown

    for line in range(20):
        decide(line)
    for line in (19, 18, 17):  # three steps back
        press(tab, "z")
        assert shown_id(tab) == audit.ids[line]
        wanted.pop(audit.ids[line])
    for line in range(17, 25):
        decide(line)
    tab.press("ArrowLeft")
    assert shown_id(tab) == audit.ids[24]  # a decided image can be shown again
    assert tab.js("document.querySelector('#doubt').className") == "decided"
    tab.press("ArrowRight")

    visit(tab, f"http://127.0.0.1:{served.port}/")  # a reload goes on where it was
    decide(25)
    press(tab, "z")  # and can still undo
    wanted.pop(audit.ids[25])

    served.kill()
    tab.press("k")
    tab.wait("!document.querySelector('#error').hidden")
    assert "does not answer" in text(tab, "#error")
    assert shown_id(tab) == audit.ids[25]  # not shown as done
    served = serve(folder, "--reviewer", "anna", "--limit", 50, "--port", served.port)
    actions = {sample: action for sample, (action, _) in wanted.items()}
    assert {sample: entry.action for sample, entry in present(folder).items()} == actions
    tab.js("document.querySelector('#toast').textContent = ''")
    tab.press("k")
    tab.wait("document.querySelector('#error').textContent.includes('was restarted')")
    visit(tab, served.address)
    for line in range(25, 50):
        decide(line)

    tab.wait("!document.querySelector('#finished').hidden")
    found = present(folder)
    assert {s: (e.action, audit.grades.index(e.to_grade)) for s, e in found.items()} == wanted
    assert all(entry.reviewer == "anna" for entry in found.values())
    skipped = sum(action == "skip" for action, _ in wanted.values())
    changed = sum(grade != audit.labels[audit.line_of[s]] for s, (_, grade) in wanted.items())
    assert text(tab, "#progress").startswith(
        f"{50 - skipped} of 50 reviewed, {changed} changed, {skipped} skipped"
    )
    assert text(tab, "#finished-title") == f"All reviewed except {skipped} skipped"
    assert str(folder) in text(tab, "#export")
    tab.press("ArrowLeft")  # back from the end
    assert shown_id(tab) == audit.ids[49]
    assert serious(tab) == []
    assert {url.partition("?")[0].rsplit("/", 2)[0] for url in tab.asked()} <= {
        f"http://127.0.0.1:{served.port}", f"http://127.0.0.1:{served.port}/api", "http:/"}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_audit(tmp_path / "audit", images=24)


def test_the_user_resolves_conflicts_of_tabs_or_reviewers(
    browser: Browser, folder: Path, serve: Any
) -> None:
    audit = read_audit(folder)
    mine, theirs = serve(folder, "--reviewer", "anna"), serve(folder, "--reviewer", "ben")
    one, two, other = (visit(browser.tab(), where.address) for where in (mine, mine, theirs))
    asked = "document.querySelector('#conflict').open"
    for tab in (
        one,
        two,
        other,
    ):  # a tab looks for news every few seconds; here none may have come yet
        tab.js(
            "{ const real = window.fetch; window.fetch = (address, ...more) => "
            "String(address).includes('/api/updates') ? new Promise(() => {}) : real(address, ...more); }"
        )

    press(one, "1")
    two.press("2")  # the same image, which this tab believes undecided
    two.wait(asked)
    assert "in another tab" in text(two, "#conflict-text")
    assert (text(two, "#conflict-theirs"), text(two, "#conflict-mine")) == ("Mayo 1", "Mayo 2")
    two.press("Escape")
    two.wait(f"!{asked}")
    assert present(folder)[audit.ids[0]].to_grade == "Mayo 1"

    other.press("3")
    other.wait(asked)
    assert "by anna" in text(other, "#conflict-text")
    other.js("document.querySelector('#toast').textContent = ''")
    other.press("m")
    other.wait("document.querySelector('#toast').textContent")
    final = present(folder)[audit.ids[0]]
    assert (final.reviewer, final.to_grade) == ("ben", "Mayo 3")
    assert [entry.action for entry in log(folder)] == ["set", "set"]

    one.press("z")  # what anna did does not hold any more
    one.wait("document.querySelector('#toast').textContent.includes('Not undone: ben set Mayo 3')")
    assert len(log(folder)) == 2
    for tab in (one, two, other):
        assert serious(tab) == []


def test_one_button_if_both_agree_and_a_true_filter_name(
    browser: Browser, folder: Path, serve: Any
) -> None:
    """Accept and keep are two buttons only where suggestion and label differ; the filter says what
    it selects."""
    audit = read_audit(folder)
    served = serve(folder, "--limit", 20)
    tab = visit(browser.tab(), served.address)
    agreeing = (audit.suggested == audit.labels).tolist()
    same = agreeing.index(True)
    for line in (agreeing.index(False), same):
        visit(tab, f"http://127.0.0.1:{served.port}/?scope=all&at={audit.ids[line]}")
        assert shown_id(tab) == audit.ids[line]
        visible = tab.js(
            "['accept', 'keep'].map((id) => document.getElementById(id)).filter((b) => b.checkVisibility())"
            ".map((b) => b.innerText.split('\\n').join(' '))"
        )
        label, suggested = (audit.grades[codes[line]] for codes in (audit.labels, audit.suggested))
        differing = [f"Accept {suggested} Enter", f"Keep {label} K"]
        assert visible == ([f"Keep {label} Enter"] if line == same else differing)
    press(tab, "Enter")
    (e,) = log(folder)
    assert (e.id, e.action, e.to_grade) == (
        audit.ids[same],
        "keep",
        audit.grades[audit.labels[same]],
    )
    scopes = tab.js("[...document.querySelector('[name=scope]').options].map((o) => o.textContent)")
    assert scopes == ["20 most doubtful", "all 24"]
    assert audit.quality[19] > 0.5  # so "likely wrong" would not be true
    assert serious(tab) == []


def test_where_nothing_is_suggested_there_is_no_place_for_it(
    browser: Browser, folder: Path, serve: Any
) -> None:
    """The button that keeps the label is as high as the others, and no filter is of suggestions."""
    keep = "document.querySelector('#keep').offsetHeight"
    skip = "document.querySelector('#skip').offsetHeight"
    seen = "document.querySelector('[name=suggested]').checkVisibility()"
    audit = read_audit(folder)
    agreeing = audit.ids[(audit.suggested == audit.labels).tolist().index(True)]
    heights = []
    for _ in range(2):
        served = serve(folder)
        tab = visit(browser.tab(), served.address)
        tab.resize(1280, 900)
        visit(tab, f"http://127.0.0.1:{served.port}/?scope=all&at={agreeing}")
        tab.press("/")
        heights.append((tab.js(keep) > tab.js(skip), tab.js(seen)))
        scores = pd.read_csv(folder / "audit.csv", dtype=str)
        scores["suggested"] = scores["suggested"].where(scores["suggested"] == scores["grade"], "")
        scores.to_csv(folder / "audit.csv", index=False)
    assert heights == [(True, True), (False, False)]
    assert serious(tab) == []


def test_the_address_keeps_the_filter(browser: Browser, folder: Path, serve: Any) -> None:
    audit = read_audit(folder)
    served = serve(folder)
    home = f"http://127.0.0.1:{served.port}/"
    tab = visit(browser.tab(), served.address)
    tab.press("/")
    tab.js("(() => { const f = document.querySelector('#filters').elements;"
           "f.grade.value = '1'; f.scope.value = 'all'; f.reader.value = 'A'; f.max.value = '60';"
           "f.max.dispatchEvent(new Event('input', {bubbles: true})); })()")  # fmt: skip
    chosen = (audit.labels == 1) & (np.array(audit.readers) == "A") & (audit.quality <= 0.6)
    fitting = np.flatnonzero(chosen)
    tab.wait("location.search.includes('reader=A')")
    assert tab.js("[...document.querySelectorAll('.chip')].map((e) => e.textContent)") == [
        "all labels", "labelled Mayo 1", "reader A", "right ≤ 60 %"]  # fmt: skip
    assert text(tab, "#found").startswith(f"{len(fitting)} image")
    where = tab.js("location.search")
    tab.call("Page.reload")
    tab.wait(f"{READY} && location.search === {json.dumps(where)}")
    assert text(tab, "#found").startswith(f"{len(fitting)} image")
    assert shown_id(tab) == audit.ids[fitting[0]]

    visit(tab, f"{home}?q={audit.ids[23][-13:]}")  # found wherever it is
    assert shown_id(tab) == audit.ids[23]
    visit(tab, f"{home}?show=done")
    assert text(tab, "#finished-title") == "No image matches this filter"
    tab.click("#finished-actions button")
    assert shown_id(tab) == audit.ids[0]
    visit(tab, f"{home}?grade=99&scope=nonsense&at=%3Cb%3E&min=x")  # as if nothing had been said
    assert shown_id(tab) == audit.ids[0]
    assert serious(tab) == []


def test_mouse_zoom_neighbours_and_help(browser: Browser, folder: Path, serve: Any) -> None:
    tab = browser.tab()
    tab.resize(1280, 800)
    visit(tab, serve(folder).address)
    width = "document.querySelector('#view > img').getBoundingClientRect().width"
    fitted = tab.js(width)
    tab.press("+")
    assert tab.js(width) > 1.3 * fitted
    tab.press("f")
    assert tab.js(width) == fitted
    tab.click("#view", times=2)
    assert tab.js(width) > 2 * fitted
    top = "document.querySelector('#view > img').getBoundingClientRect().top"
    before = tab.js(top)
    for kind, y in (("mousePressed", 360), ("mouseMoved", 300), ("mouseReleased", 300)):
        tab.call(
            "Input.dispatchMouseEvent",
            type=kind,
            x=200,
            y=y,
            button="left",
            buttons=1,
            clickCount=1,
        )
    assert tab.js(top) == pytest.approx(before - 60, abs=1)
    tab.press("f")

    tab.press("n")
    tab.wait("document.querySelectorAll('.similar img').length >= 8")
    assert tab.js(width) < fitted  # side by side
    assert tab.js("document.querySelectorAll('#neighbours .row').length") == 4
    tab.click(".similar")
    tab.wait("document.querySelector('.enlarged img')?.complete")
    tab.press("Escape")
    tab.press("Escape")
    assert tab.js("document.querySelector('#neighbours').hidden")

    tab.press("?")
    assert "accept the suggestion" in text(tab, "#help")
    tab.press("k")  # no decision behind a dialogue
    tab.press("Escape")
    assert log(folder) == []
    tab.click("#skip")
    tab.wait("document.querySelector('#toast').textContent")
    press(tab, "Enter")  # accepts: the button that was clicked does not keep the focus
    assert [entry.action for entry in log(folder)] == ["skip", "accept"]
    assert serious(tab) == []


def test_where_the_networks_look(browser: Browser, tmp_path: Path, serve: Any) -> None:
    data = srjt.data.synthetic.generate(images=40, patients=10, size=32)
    small = {"network": "tiny", "image_size": 32, "crop": 28, "epochs": 1, "noise_rate": 0.2}
    srjt.audit(data, out=tmp_path / "audit", folds=2, method="co-teaching+ours", **small)
    tab = browser.tab()
    visit(tab, serve(tmp_path / "audit").address)
    picture = "document.querySelector('#view > canvas')"
    tab.press("w")
    tab.wait(f"{picture}?.picture.src.endsWith('/map/0')")
    assert tab.js(f"[{picture}.width, {picture}.height]") == [648, 320]  # two networks
    legend = "document.querySelector('#map-legend').checkVisibility()"
    assert tab.js(legend)  # as long as the map is shown
    strong = tab.js(f"{picture}.toDataURL()")
    strength = "document.querySelector('#map-strength')"
    tab.js(f"{strength}.value = 0; {strength}.dispatchEvent(new Event('input'))")
    assert tab.js(f"{picture}.toDataURL()") != strong
    tab.press("ArrowRight")
    tab.wait(f"{picture}?.picture.src.endsWith('/map/1')")
    tab.press("w")
    tab.wait(
        f"{SHOWN} && new URL(document.querySelector('#view > img').src).pathname === '/image/1'"
    )
    assert not tab.js(legend)
    assert serious(tab) == []


@pytest.mark.parametrize("judged", [False, True])
def test_networks_worse_than_naive_preselect_nothing(
    browser: Browser, folder: Path, serve: Any, judged: bool
) -> None:
    """What they suggest may be shown beside the caution; of networks that have learnt nothing it is
    not."""
    edit_json(folder / "audit.json", notice="They do not beat it.", judged=judged, trusted=False)
    served = serve(folder)
    tab = visit(browser.tab(), served.address)
    assert tab.js("document.querySelector('#notice').checkVisibility()")
    assert text(tab, "#notice") == "They do not beat it."
    assert tab.js("document.querySelectorAll('#panel .primary').length") == 0
    seen = "[...document.querySelectorAll('.judgement')].some((e) => e.checkVisibility())"
    assert tab.js(seen) == judged
    assert ("probability" in text(tab, "#panel")) == judged
    assert ("remaining noise" in text(tab, "#progress")) == judged
    first = shown_id(tab)
    press(tab, "Enter")
    assert text(tab, "#toast") == "Set a grade by its number, or keep the label with K."
    assert (shown_id(tab), log(folder)) == (first, [])
    press(tab, "k")
    press(tab, "z")  # the image is in the list again: both numbers count it
    count = len(read_audit(folder)) if not judged else read_audit(folder).expected_wrong
    assert text(tab, "#position") == f"1 of {count}"
    assert text(tab, "#found") == f"{count} images in the list"
    assert ("remaining noise" in served.interrupt()) == judged


def test_without_a_known_rate_there_is_the_order_and_no_probability(
    browser: Browser, folder: Path, serve: Any
) -> None:
    """Nor is there a number for a grade that the networks do not recognise, or for a label that was
    verified."""
    scores = pd.read_csv(folder / "audit.csv", dtype=str)
    scores["verified_grade"] = ["", scores["grade"][1], *[""] * (len(scores) - 2)]
    scores.to_csv(folder / "audit.csv", index=False)
    edit_json(folder / "audit.json", determined=False)
    served = serve(folder)
    tab = visit(browser.tab(), served.address)
    assert text(tab, "#doubt") == f"Among the 10 most doubtful labels of {len(scores)}."
    panel = re.sub(
        r"\d+\s%\sof its training batches", "", text(tab, "#panel")
    )  # a count, not a probability
    assert "%" not in panel
    assert not tab.js("document.querySelector('.probability').checkVisibility()")
    assert "remaining noise" not in text(tab, "#progress")
    press(tab, "k")
    assert text(tab, "#doubt").startswith("Verified: ")
    assert "remaining noise" not in served.interrupt()
    edit_json(folder / "audit.json", determined=True, unrecognised=[scores["grade"][2]])
    tab = visit(browser.tab(), serve(folder).address)
    tab.press("ArrowRight")
    assert text(tab, "#doubt").startswith("The networks do not recognise ")
    panel = re.sub(
        r"\d+\s%\sof its training batches", "", text(tab, "#panel")
    )  # a count, not a probability
    assert "%" not in panel


def test_networks_differ_a_map_is_missing_a_key_is_held(
    browser: Browser, folder: Path, serve: Any
) -> None:
    scores = pd.read_csv(folder / "audit.csv", dtype=str)
    scores["network_2"] = scores["suggested"]
    scores.loc[0, "network_2"] = next(
        grade for grade in scores["grade"] if grade != scores["suggested"][0]
    )
    scores.to_csv(folder / "audit.csv", index=False)
    tab = visit(browser.tab(), serve(folder).address)
    explained = "[...document.querySelectorAll('#facts small')].map((e) => e.textContent)"
    assert tab.js(explained) == [
        "Each network judges the image alone. The suggestion uses both, and what is known about the label."
    ]
    tab.press("ArrowRight")  # here they agree
    assert tab.js(explained) == []
    tab.press("w")
    tab.wait("document.querySelector('#toast').textContent.includes('no longer in its folder')")
    assert tab.js("document.querySelector('#look').getAttribute('aria-pressed')") == "false"
    for again in (False, True, True, True):  # one image is graded
        key = {"key": "k", "windowsVirtualKeyCode": 75}
        tab.call("Input.dispatchKeyEvent", type="keyDown", autoRepeat=again, **key)
        tab.wait("document.querySelector('#toast').textContent.startsWith('Kept')")
    assert len(log(folder)) == 1


def test_an_unreadable_image_is_explained_and_skipped(
    browser: Browser, serve: Any, tmp_path: Path
) -> None:
    folder = make_audit(tmp_path / "audit", images=24, table=False)
    audit = read_audit(folder)
    (folder / audit.images[0]).unlink()
    (folder / audit.images[1]).write_bytes(b"\x89PNG\r\n\x1a\n and then nothing")
    with Image.open(folder / audit.images[2]) as image:
        image.save(folder / audit.images[2], "TIFF")
    tab = browser.tab()
    tab.open(serve(folder).address)
    for reason in ("there is no such file", "Cannot read the image"):
        tab.wait(f"document.querySelector('#reason')?.textContent.includes({json.dumps(reason)})")
        press(tab, "s")
    tab.wait(f"{SHOWN} && document.querySelector('#view > img').naturalWidth === 32")  # a TIFF
    assert shown_id(tab) == audit.ids[2]


HOSTILE = "<img src=x onerror=evil()>"


def test_hostile_names_are_text_and_scripts_are_blocked(
    browser: Browser, serve: Any, tmp_path: Path
) -> None:
    grades = (HOSTILE, "'\"><script>evil()</script>", "c", "d")
    folder = make_audit(tmp_path / "audit", images=24, grades=grades)
    table = (folder / "audit.csv").read_text().replace("images/p", f"{HOSTILE}/p")
    (folder / "audit.csv").write_text(table.replace(",A\n", f",{HOSTILE}\n"))
    tab = browser.tab()
    tab.open(serve(folder, "--reviewer", HOSTILE).address)
    tab.wait(READY)
    tab.press("s")
    tab.press("n")
    tab.press("?")
    assert HOSTILE in text(tab, "#facts")
    assert tab.js("document.querySelectorAll('img[src=x]').length") == 0
    assert tab.js("document.querySelectorAll('body script').length") == 0
    for attack in (
        "{ const s = document.createElement('script'); s.textContent = 'window.evil = 1'; document.body.append(s); }",
        "document.body.insertAdjacentHTML('beforeend', '<b id=b onclick=\"window.evil = 1\">x</b>'); b.click();",
        "fetch('http://127.0.0.1:9/').catch(() => 0)",
    ):
        tab.js(attack)
    tab.wait("true")
    assert tab.js("window.evil === undefined")
    refused = [c for c in tab.complaints() if "Content Security Policy" in json.dumps(c)]
    assert len(refused) >= 3


@pytest.fixture(scope="module")
def read_only(shared_audit_folder: Path, serve: Any) -> str:
    """The address of a review in which nothing is decided."""
    return str(serve(shared_audit_folder).address)


@pytest.mark.parametrize("width", [375, 820, 1280])
def test_it_fits_small_screens(browser: Browser, read_only: str, width: int) -> None:
    tab = browser.tab()
    tab.resize(width, 800, mobile=width < 1000)
    visit(tab, read_only)
    for key in ("", "n", "/"):
        if key:
            tab.press(key)
        assert tab.js("document.documentElement.scrollWidth") == width
    buttons = "[...document.querySelectorAll('#grades button, .actions button:not([hidden])')]"
    assert min(tab.js(f"{buttons}.map((b) => b.getBoundingClientRect().height)")) >= 40  # fingers
    spans = "[...document.querySelectorAll('.actions button:not([hidden]) span')]"
    lines = "(s) => s.getBoundingClientRect().height / parseFloat(getComputedStyle(s).lineHeight)"
    assert max(tab.js(f"{spans}.map({lines})")) < 2.1  # a word is not broken into letters
    tab.press("Escape")
    tab.press("Escape")
    inside = "document.querySelector('#keep').getBoundingClientRect().bottom <= innerHeight"
    assert tab.js(inside)  # without scrolling
    covered = """[...document.querySelectorAll('#grades button')].some((grade) => {
      const r = grade.getBoundingClientRect();
      return !grade.contains(document.elementFromPoint(r.x + r.width / 2, r.y + r.height / 2));
    })"""
    assert not tab.js(covered)  # nothing lies over a grade


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_in_both_colour_schemes(browser: Browser, read_only: str, scheme: str) -> None:
    tab = browser.tab()
    tab.call(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
    )
    visit(tab, read_only)
    tab.press("/")
    tab.press("Escape")
    tab.press("n")
    tab.wait("document.querySelectorAll('.similar img').length >= 8")
    _, texts = tab.js(CONTRAST)
    assert len(texts) > 40
    assert [text for text in texts if text[0] < 4.5] == []  # WCAG AA
