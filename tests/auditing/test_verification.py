"""The sample that is verified: drawn by doubt, stored with its probabilities, weighted wherever it
is used."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from auditing.test_review_server import serving
from fixtures.audit_folders import make_audit
from fixtures.run_folders import edit_json
from refusals import about, explained, refuses
from srjt.auditing import verification
from srjt.auditing.blind_readings import draw_sample
from srjt.auditing.folder import AuditFolder, _Verified, read_audit
from srjt.auditing.review_app import BlindSession
from srjt.auditing.review_log import Answer, Decisions
from srjt.auditing.scores import verified_summary
from srjt.auditing.verification import (
    choose_plan,
    drawn_by,
    labels_needed_for_looks,
    labels_needed_for_rate,
    next_look,
    read_plan,
    read_probabilities,
    sample_lines,
    sample_share,
    verified_so_far,
    with_verified_sample,
)
from srjt.data import read
from srjt.noise.drawing import draw_by_doubt
from srjt.noise.estimate import estimate_noise
from srjt.noise.verified import exact_interval


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_audit(tmp_path_factory.mktemp("verified") / "audit", images=120)


@pytest.fixture
def audit(folder: Path) -> Any:
    yield read_audit(folder)
    for name in (verification.FILE, "decisions.sqlite", "summary.json"):
        for path in folder.glob(f"{name}*"):
            path.unlink()


def answer(audit: AuditFolder, lines: list[int], *, right: bool = True) -> list[Answer]:
    """As labelled, or one grade off; kept in the log, too."""
    answers = []
    with closing(Decisions(audit.folder / "decisions.sqlite")) as decisions:
        for line in lines:
            label = int(audit.labels[line])
            grade = audit.grades[label if right else (label + 1) % len(audit.grades)]
            decisions.add_answer(audit.ids[line], purpose="verify", reviewer="anna", grade=grade)
            answers.append(Answer(id=audit.ids[line], reviewer="anna", at="", grade=grade))
    return answers


def test_the_sample_is_drawn_once_and_kept(audit: AuditFolder) -> None:
    plan = choose_plan(audit, at_random=False, begun=False)
    assert plan is not None
    few, many = sample_lines(audit, 20, plan), sample_lines(audit, 10**6, plan)
    assert many[:20] == few
    assert sorted(many) == list(range(len(audit)))
    names = sorted(audit.ids)
    doubt = 1 - audit.quality[[audit.line_of[name] for name in names]]
    drawing = draw_by_doubt(doubt)
    assert plan.in_order == [names[row] for row in drawing.order]
    again = choose_plan(audit, at_random=False, begun=True)
    assert again is not None
    assert again.in_order == plan.in_order
    np.testing.assert_allclose(
        again.drawing.probability(20)[:20], plan.drawing.probability(20)[plan.drawing.order[:20]]
    )
    assert (1 - audit.quality)[few].mean() > (1 - audit.quality).mean()


def test_a_sample_at_random_stays_one(audit: AuditFolder) -> None:
    assert choose_plan(audit, at_random=True, begun=False) is None
    assert choose_plan(audit, at_random=False, begun=True) is None  # begun by an earlier version
    assert not (audit.folder / verification.FILE).exists()
    assert sample_lines(audit, 7, None) == draw_sample(audit, 7)
    answer(audit, draw_sample(audit, 7))
    assert read_probabilities(audit.folder) is None
    assert with_verified_sample(read(audit.table), audit.folder).verified_probability is None
    choose_plan(audit, at_random=False, begun=False)
    with refuses("conflict", "at_random"):
        choose_plan(audit, at_random=True, begun=False)


def test_networks_that_have_learnt_nothing_draw_at_random(audit: AuditFolder) -> None:
    audit.facts.judged = False
    assert choose_plan(audit, at_random=False, begun=False) is None


def test_what_is_verified_already_is_not_drawn_but_known(audit: AuditFolder) -> None:
    audit.verified[:5] = audit.labels[:5]
    plan = choose_plan(audit, at_random=False, begun=False)
    assert plan is not None
    assert set(plan.ids) == set(audit.ids[5:])
    lines = sample_lines(audit, 10, plan)
    answer(audit, lines)
    manifest = read(audit.table)
    first = np.full(len(manifest), -1)
    first[[manifest.ids.index(name) for name in audit.ids[:5]]] = 0
    manifest = type(manifest)(
        table=manifest.table.assign(verified_grade=first),
        grades=manifest.grades,
        root=manifest.root,
    )
    found = with_verified_sample(manifest, audit.folder)
    assert found.verified_labels is not None
    assert found.verified_probability is not None
    chance = dict(zip(found.ids, found.verified_probability, strict=True))
    assert [chance[name] for name in audit.ids[:5]] == [1.0] * 5
    expected = plan.drawing.probability(10)
    place = {name: row for row, name in enumerate(plan.ids)}
    for line in lines:
        assert chance[audit.ids[line]] == pytest.approx(expected[place[audit.ids[line]]], rel=1e-6)
    assert {
        chance[name]
        for name, grade in zip(found.ids, found.verified_labels, strict=True)
        if grade < 0
    } == {0.0}


def test_the_sample_reaches_to_the_last_answer_and_leaves_gaps_out(audit: AuditFolder) -> None:
    plan = choose_plan(audit, at_random=False, begun=False)
    assert plan is not None
    names = plan.in_order
    chances = plan.probability([names[0], names[3]])
    assert list(chances) == names[:4]
    place = {name: row for row, name in enumerate(plan.ids)}
    assert chances[names[2]] == plan.drawing.probability(4)[place[names[2]]]
    assert plan.probability([]) == {}
    lines = sample_lines(audit, 4, plan)
    answers = [
        Answer(
            id=audit.ids[line],
            reviewer="anna",
            at="",
            grade=None if line == lines[1] else audit.grades[0],
        )
        for line in lines
    ]
    found = sample_share(audit, answers, plan)
    assert found is not None
    assert found[1] == 3


def test_the_sentence_weights_what_was_drawn(audit: AuditFolder) -> None:
    plan = choose_plan(audit, at_random=False, begun=False)
    assert plan is not None
    assert verified_so_far(audit, [], plan) == ""
    answers = answer(audit, sample_lines(audit, 30, plan)[:10], right=False)
    answers += answer(audit, sample_lines(audit, 30, plan)[10:])
    found = sample_share(audit, answers, plan)
    assert found is not None
    low, high = found[0].interval
    assert verified_so_far(audit, answers, plan) == (
        "Wrong among 30 labels verified by doubt: 10. Weighted by the probabilities of their draw, "
        f"{found[0].rate:.0%} of all labels are wrong (95 % interval: {low:.0%} to {high:.0%})."
    )
    weights = np.array([1 / chance for chance in plan.probability(plan.in_order[:30]).values()])
    plain = weights[:10].sum() / weights.sum()
    assert found[0].rate == pytest.approx(plain, abs=0.1)  # moved by the doubt of the others


def test_the_audit_says_the_rate_that_the_review_said(
    audit: AuditFolder,
) -> None:
    """One rate, and one interval: the networks have not changed, and the audit is not told
    otherwise by the doubt that it has after the verification."""
    plan = choose_plan(audit, at_random=False, begun=False)
    assert plan is not None
    lines = sample_lines(audit, 60, plan)
    answers = answer(audit, lines[:20], right=False) + answer(audit, lines[20:])
    said = sample_share(audit, answers, plan)
    assert said is not None
    manifest = with_verified_sample(read(audit.table), audit.folder)
    doubt = drawn_by(manifest, audit.folder)
    assert doubt is not None
    given: dict[str, Any] = {
        "labels": manifest.labels,
        "probabilities": np.eye(4)[manifest.labels] * 0.6 + 0.1,
        "groups": manifest.groups,
        "verified": manifest.verified_labels,
        "verified_probability": manifest.verified_probability,
        "bootstrap": 10,
    }
    found = estimate_noise(**given, verified_doubt=doubt)
    assert found.rate == pytest.approx(said[0].rate)
    assert found.rate_interval == pytest.approx(said[0].interval)
    with refuses("wrong_values", says="verified_doubt"):
        estimate_noise(**given, verified_doubt=doubt[1:])
    assert drawn_by(read(audit.table), audit.folder) is None  # nothing is verified


def test_every_look_has_its_share_of_the_error_probability(audit: AuditFolder) -> None:
    plan = choose_plan(audit, at_random=False, begun=False)
    nothing = next_look(audit, [], plan, within=0.1)
    assert (nothing.size, nothing.share, nothing.next_size) == (0, None, 50)
    answers = answer(audit, sample_lines(audit, 50, plan))
    first = next_look(audit, answers, plan, within=0.001)
    assert (first.size, first.reached, first.next_size) == (50, False, 100)
    alone = sample_share(audit, answers, plan, size=50)
    shared = sample_share(audit, answers, plan, size=50, looks=3)  # at 50, 100 and all 120
    assert first.share is not None
    assert alone is not None
    assert shared is not None
    assert first.share.interval == shared[0].interval
    assert np.diff(shared[0].interval) > np.diff(alone[0].interval)
    wide = float(np.diff(shared[0].interval)[0]) / 2
    reached = next_look(audit, answers, plan, within=wide)
    assert (reached.reached, reached.next_size) == (True, None)
    answers += answer(audit, sample_lines(audit, 10**6, plan)[50:])
    last = next_look(audit, answers, plan, within=1e-6)
    assert (last.size, last.next_size) == (120, None)
    # a look counts the labels of its size alone, whatever was verified after it
    again = next_look(audit, answers, plan, within=wide)
    assert (again.size, again.share) == (50, first.share)
    with refuses("out_of_bounds", "within"):
        next_look(audit, answers, plan, within=0.0)


def test_the_sample_grows_until_the_interval_is_short_enough(audit: AuditFolder) -> None:
    """In one session: after the last label of a look, the next ones are shown if they are needed."""
    plan = choose_plan(audit, at_random=False, begun=False)
    with closing(Decisions(audit.folder / "decisions.sqlite")) as decisions:

        def larger(within: float) -> list[int]:
            look = next_look(audit, decisions.answers("verify"), plan, within=within)
            return sample_lines(audit, look.next_size, plan) if look.next_size else []

        wanted = 0.001
        session = BlindSession(
            audit=audit,
            decisions=decisions,
            reviewer="anna",
            lines=sample_lines(audit, 50, plan),
            larger=lambda: larger(wanted),
        )
        with serving(session) as client:
            for position in range(50):
                assert len(session.lines) == 50
                body = {"position": position, "grade": int(audit.labels[session.lines[position]])}
                status, said = client.post("/api/answer", body)
                assert status == 200
            assert said["images"] == len(session.lines) == 100
            assert client.ask("/image/99")[0] == 200
        assert session.lines == sample_lines(audit, 100, plan)
        wanted = 0.4
        for position in range(50, 100):
            session.answer(position, 0)
        assert len(session.lines) == 100  # short enough


@pytest.mark.parametrize(
    ("within", "command", "expected"),
    [
        ("0.1%", None, "Next: srjt review {folder} --no-open --within 0.1%"),
        ("40 %", "srjt audit labels.csv --out audit", "Next: srjt audit labels.csv --out audit"),
        ("0.4", "srjt audit 'a b.csv'", "Next: cd '/else where' && srjt audit 'a b.csv'"),
    ],
)
def test_the_next_step_is_a_command(
    audit: AuditFolder,
    srjt: Any,
    monkeypatch: pytest.MonkeyPatch,
    within: str,
    command: str | None,
    expected: str,
) -> None:
    plan = choose_plan(audit, at_random=False, begun=False)
    lines = sample_lines(audit, 60, plan)
    folder = audit.folder
    answer(audit, lines[:49])
    served = []

    def serve(session: BlindSession, *given: Any, **more: Any) -> None:
        served.append(session)
        answer(audit, lines[49:])

    monkeypatch.setattr("srjt.auditing.review_app.serve", serve)
    original = (folder / "audit.json").read_text()
    directory = "/else where" if "cd" in expected else str(Path.cwd())
    edit_json(folder / "audit.json", command=command, directory=directory)
    code, said = srjt("review", folder, "--no-open", "--within", within)
    (folder / "audit.json").write_text(original)
    assert code == 0, said
    assert [len(session.lines) for session in served] == [50]
    expected = expected.format(folder=folder)
    assert said.rstrip().endswith(expected), said
    assert said.count("95 % interval") == 1  # that of the look


def test_a_sample_that_is_done_or_too_large(
    audit: AuditFolder, srjt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = choose_plan(audit, at_random=False, begun=False)
    answer(audit, sample_lines(audit, 10, plan))
    served = []
    monkeypatch.setattr(
        "srjt.auditing.review_app.serve", lambda *given, **more: served.append(given)
    )
    order = ("review", audit.folder, "--no-open", "--reviewer", "anna", "--sample")
    _, said = srjt(*order, 8)
    assert "You have answered all 8 labels already." in said
    _, said = srjt(*order, 500)
    assert "--sample is 500, and only 120 labels can be drawn" in said
    assert [len(session.lines) for session, _ in served] == [8, 120]


def test_the_need_is_that_of_the_asked_width(audit: AuditFolder) -> None:
    plan = choose_plan(audit, at_random=False, begun=False)
    for drawn in (plan, None):
        look = next_look(audit, [], drawn, within=0.1)
        needs = [
            labels_needed_for_looks(audit, drawn, look, within=within)
            for within in (0.3, 0.1, 0.001)
        ]
        assert all(
            need.startswith("The interval is computed after 50, 100 and 120") for need in needs
        )
        assert "For ±30%, 50 labels" in needs[0]
        assert "For ±0.1%, 120 labels" in needs[2]
        assert len(set(needs)) == 3
    answers = answer(audit, sample_lines(audit, 50, plan))
    look = next_look(audit, answers, plan, within=0.001)
    told = labels_needed_for_looks(audit, plan, look, within=0.001)
    assert told == "For ±0.1%, 120 labels are expected to be needed."


def test_labels_that_had_no_chance_are_refused(audit: AuditFolder) -> None:
    choose_plan(audit, at_random=False, begun=False)
    path = audit.folder / verification.FILE
    table = pd.read_csv(path)
    table[table["id"] != audit.ids[3]].to_csv(path, index=False)
    for use in (
        lambda: choose_plan(audit, at_random=False, begun=True),
        lambda: with_verified_sample(read(audit.table), audit.folder),
    ):
        with refuses("data_changed", says=audit.ids[3]):
            use()


def test_an_image_that_cannot_be_read_is_no_new_sample(audit: AuditFolder) -> None:
    """It was left out of the audit, and is left out of the next one."""
    plan = choose_plan(audit, at_random=False, begun=False)
    assert plan is not None
    answer(audit, sample_lines(audit, 10, plan))
    manifest = read(audit.table)
    gone = manifest.ids.index(audit.ids[3])
    path = audit.folder / verification.FILE
    table = pd.read_csv(path)
    table[table["id"] != audit.ids[3]].to_csv(path, index=False)
    Path(manifest.paths[gone]).unlink()
    found = with_verified_sample(manifest, audit.folder)
    assert found.ids == manifest.ids
    Path(manifest.paths[gone]).write_text("no image")
    assert with_verified_sample(manifest, audit.folder).ids == manifest.ids


@pytest.mark.parametrize(
    "change", [{"size": 0.0}, {"place": np.nan}, {"id": "one"}, {"doubt": 1.5}, {"place": "x"}]
)
def test_a_damaged_sample_is_one_sentence(audit: AuditFolder, change: dict[str, Any]) -> None:
    choose_plan(audit, at_random=False, begun=False)
    path = audit.folder / verification.FILE
    pd.read_csv(path).assign(**change).to_csv(path, index=False)
    with refuses("damaged_file", says="verification.csv"):
        read_plan(audit.folder)


def test_the_export_carries_the_probabilities_to_training(
    audit: AuditFolder, tmp_path: Path, srjt: Any
) -> None:
    plan = choose_plan(audit, at_random=False, begun=False)
    lines = sample_lines(audit, 12, plan)
    answer(audit, lines)
    out = tmp_path / "checked.csv"
    code, said = srjt("review", "export", audit.folder, "--verified", "--out", out)
    assert (code, "120 rows, 12 verified." in said) == (0, True)
    assert audit.table is not None
    manifest = read(out, images=audit.table.parent)
    assert manifest.verified_labels is not None
    assert manifest.verified_probability is not None
    known = manifest.verified_labels >= 0
    chances = read_probabilities(audit.folder)
    assert chances is not None
    expected = [chances[name] for name, one in zip(manifest.ids, known, strict=True) if one]
    # some versions of pandas round the last digit of a number that they read
    assert manifest.verified_probability[known].tolist() == pytest.approx(expected, rel=1e-14)
    table = pd.read_csv(out, dtype=str, keep_default_na=False)
    table.loc[table["verified_grade"] != "", "verified_probability"] = "2"
    table.to_csv(out, index=False)
    with refuses("wrong_values"):
        read(out, images=audit.table.parent)


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (["--sample", "5", "--within", "0.05"], "conflict within"),
        (["--at-random"], "missing_option at_random"),
        (["--within", "0.05", "--limit", "5"], "conflict sample"),
        (["--within", "0.9"], "out_of_bounds within"),
        (["--within", "90%"], "out_of_bounds within"),
        (["--within", "nan"], "out_of_bounds within"),
        (["--within", "%"], "wrong_type within"),
    ],
)
def test_options_that_contradict_each_other(
    folder: Path, srjt: Any, options: list[str], wrong: str
) -> None:
    with explained() as errors:
        code, _ = srjt("review", folder, "--no-open", *options)
    assert (code, [*map(about, errors)]) == (2, [wrong])


def test_the_summary_weights_too() -> None:
    """What summary.json holds of a sample by doubt is read back, also that of earlier versions."""
    found = verified_summary(np.array([1.0, 0.0, 0.0]), np.array([1.0, 2.0, 1.0]))
    assert found["rate_without_model"] == 0.25
    assert found["by_doubt"]
    # Kish's size: (1 + 2 + 1)² / (1 + 4 + 1) labels
    assert found["interval_without_model"] == pytest.approx(exact_interval(0.25, 16 / 6))
    shares = [{"grade": "Mayo 0", "labels": 3, "wrong": 1, "rate": 0.25, "interval": [0.1, 0.9]}]
    read_back = _Verified.model_validate(json.loads(json.dumps(found | {"grades": shares})))
    assert (read_back.rate_without_model, read_back.grades[0].wrong) == (0.25, 1)
    earlier = {"labels": 3, "wrong": 1, "rate": 0.25, "interval": [0.1, 0.9]}
    assert _Verified.model_validate(earlier).interval_without_model == (0.1, 0.9)


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        ({"verify_more": 0, "patients": None}, ""),
        (
            {"verify_more": 56, "verify_random": 100, "patients": None},
            "To know the rate within ±5%, about 56 labels drawn by doubt are needed, or 100 at"
            " random.",
        ),
        (
            {"verify_more": 56, "verify_random": 100, "patients": []},
            "To know the rate within ±5%, about 56 labels drawn by doubt are needed, or 100 at"
            " random. More are needed if wrong labels are those of few patients.",
        ),
        (
            {"verify_more": 40, "verify_random": None, "patients": None, "verified": {"labels": 9}},
            "To know the rate within ±5%, about 40 more labels are needed.",
        ),
    ],
)
def test_a_review_says_how_many_labels_the_rate_needs(
    audit: AuditFolder, monkeypatch: pytest.MonkeyPatch, summary: dict[str, Any], said: str
) -> None:
    monkeypatch.setattr("srjt.auditing.verification.read_summary", lambda folder: summary)
    assert labels_needed_for_rate(audit) == ""  # the folder has no summary
    (audit.folder / "summary.json").touch()
    assert labels_needed_for_rate(audit) == said
