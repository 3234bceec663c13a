"""What a consensus rests on, and why errors may not be determined: facts and their sentences."""

import pytest

from srjt.readers.basis import Basis, Undetermined


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (Undetermined(kind="one_reader"), "One reader alone cannot be told from the truth"),
        (Undetermined(kind="no_pairs"), "No item has two readings"),
        (Undetermined(kind="few", several=1, known=0), "Only 1 item has several readings and 0 a"),
        (Undetermined(kind="few", several=9, known=3), "Only 9 items have several readings and 3"),
        (Basis(kind="reference"), "The reference is taken as the truth"),
        (
            Basis(kind="two_readers", items=250),
            "A third reader of about 250 items, or 250 verified",
        ),
        (Basis(kind="unbiased"), "The readers as a whole are taken as unbiased"),
        (Basis(kind="shared_errors", times=0.5), "taken to be 0.5 times as frequent as those"),
        (Basis(kind="shared_errors", times=1.0), "taken to be as frequent as those of one reader"),
    ],
)
def test_every_fact_has_a_sentence_with_its_numbers(facts: Undetermined | Basis, said: str) -> None:
    assert said in facts.sentence
    assert facts.sentence.endswith(".")
