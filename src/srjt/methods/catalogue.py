"""The methods that come with srjt: a row each, and no code. The paper's fourteen in the order of its tables, six
further baselines, and our recipe.

A row names its class by module, so that ``srjt methods`` and the settings read the table without loading torch.

"+ours" is Self-Relaxed Joint Training (Takezaki et al., WACV 2025) on a host, that is, on the joint method that it is
added to: rank by the hard loss, sharpened by τ = 0.1; learn from the soft label (Algorithms 1–3). A host becomes
"+ours" by a row with ``update="soft"``.
"""

from __future__ import annotations

from srjt.methods.registry import Recipe, RegisteredMethod

__all__ = ["METHODS"]

OURS = "Takezaki et al., WACV 2025"


def _one(
    name: str,
    where: str,
    *,
    updates: str,
    paper: str,
    scores: str = "–",
    needs: str = "",
    compared: bool = True,
) -> RegisteredMethod:
    return RegisteredMethod(
        name=name, source=f"srjt.methods.{where}", networks=1, needs=tuple(filter(None, [needs])),
        scores=scores, updates=updates, paper=paper, compared=compared,
    )  # fmt: skip


def _two(
    name: str, where: str, *, scores: str, updates: str, paper: str, **defaults: object
) -> RegisteredMethod:
    return RegisteredMethod(
        name=name, source=f"srjt.methods.{where}", networks=2, needs=("noise_rate",),
        scores=scores, updates=updates, paper=paper, defaults=defaults,
    )  # fmt: skip


METHODS = (
    _one("standard", "standard:Standard", updates="hard label", paper="baseline"),
    _one("sord", "sord:Sord", updates="soft label", paper="Díaz & Marathe, CVPR 2019"),
    _one("label-smooth", "label_smooth:LabelSmooth", updates="label smoothed by 0.1",
         paper="Szegedy et al., CVPR 2016"),
    _one("f-correction", "f_correction:ForwardCorrection", updates="−log (Pᵀp) at the label",
         paper="Patrini et al., CVPR 2017", needs="transition"),
    _one("reweight", "reweight:Reweight", scores="p / (Pᵀp), a weight", updates="weighted hard label",
         paper="Liu & Tao, TPAMI 2016", needs="transition"),
    _one("mixup", "mixup:Mixup", updates="blended hard labels", paper="Zhang et al., ICLR 2018"),
    _one("cdr", "cdr:Cdr", scores="|w·g| of each weight", updates="hard label, critical weights",
         paper="Xia et al., ICLR 2021", needs="noise_rate"),
    _one("garg", "garg:Garg", updates="Σ_j (P⁻¹)_ỹj ℓ_coral(j)", paper="Garg & Manwani, ACML 2020", needs="transition"),
    _two("co-teaching", "co_teaching:CoTeaching", scores="ℓ_h", updates="hard label, peer's choice",
         paper="Han et al., NeurIPS 2018"),
    _two("jocor", "jocor:JoCor", scores="ℓ_h1 + ℓ_h2 + λD", updates="hard label + λD, common choice",
         paper="Wei et al., CVPR 2020"),
    _two("codis", "codis:CoDis", scores="ℓ_h − λD", updates="hard label, peer's choice", paper="Xia et al., ICCV 2023"),
    _two("co-teaching+ours", "co_teaching:CoTeaching", scores="ℓ_h(τ)", updates="soft label, peer's choice",
         paper=OURS, update="soft"),
    _two("jocor+ours", "jocor:JoCor", scores="ℓ_h1(τ) + ℓ_h2(τ) + λD(τ)", updates="soft label + λD, common choice",
         paper=OURS, update="soft"),
    _two("codis+ours", "codis:CoDis", scores="ℓ_h(τ) − λD(τ)", updates="soft label, peer's choice",
         paper=OURS, update="soft"),
    # Baselines that the paper does not compare with; ``all`` in a study leaves them out.
    _one("eae", "eae:ExpectedAbsoluteError", updates="E_p |grade − label| after cross-entropy", paper="this project",
         compared=False),
    _one("gce", "gce:GeneralisedCrossEntropy", updates="(1 − p^q) / q", paper="Zhang & Sabuncu, NeurIPS 2018",
         compared=False),
    _one("elr", "elr:EarlyLearning", updates="hard label + λ log(1 − ⟨running average, p⟩)",
         paper="Liu et al., NeurIPS 2020", compared=False),
    _one("sce", "sce:SymmetricCrossEntropy", updates="−α log p − βA (1 − p)", paper="Wang et al., ICCV 2019",
         compared=False),
    _one("corn", "corn:Corn", updates="Pr(grade > k | grade ≥ k) for all k ≤ label", paper="Shi et al., PAA 2023",
         compared=False),
    _one("cdw-ce", "cdw_ce:ClassDistanceWeighted", updates="−Σ_c |c − label|^α log(1 − p^c)",
         paper="Polat et al., MIUA 2022", compared=False),
    # Our recipe, told nothing: the matrix of label errors is estimated. benchmarks/recipe_on_features.py says what
    # it is worth; this is the only place to change it.
    RegisteredMethod(
        name="srjt", source="srjt.methods.agreement:ForwardAgreement", networks=2, needs=("transition",),
        scores="–", updates="−log (Pᵀp) at the label, P estimated; λD on all samples", paper="this project",
        recipe=Recipe(
            noise_rate="auto",
            for_images={"optimizer": "adamw", "schedule": "cosine", "warmup_epochs": 1, "learning_rate": 1e-3},
            for_features={"grows_with": "fit"},
        ),
        defaults={"co_lambda": 4.0, "grows_with": "training"}),
)  # fmt: skip
