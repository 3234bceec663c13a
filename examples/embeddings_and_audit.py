"""Train on embeddings and find doubtful labels: everything on a CPU, in seconds.

python examples/embeddings_and_audit.py
"""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import srjt
from srjt.data.synthetic import generate

# Images of known severity; 30 % of the labels are made wrong, mostly by one grade.
images = generate(images=600, patients=60)
true, patients = images.labels, np.array(images.patients)
rho = srjt.noise.rho_for_rate("quasi", rate=0.3, class_counts=images.class_counts)
labels = srjt.noise.corrupt(
    true, srjt.noise.transition_matrix("quasi", num_classes=4, rho=rho), seed=0
)
wrong = labels != true

# Replace this by your own model: one row of numbers per image. Here they are means and quantiles of
# the colours.
pixels = images.arrays.reshape(len(true), -1, 3) / 255
embeddings = np.concatenate(
    [pixels.mean(axis=1), *np.quantile(pixels, [0.1, 0.5, 0.9], axis=1), pixels.std(axis=1)], 1
)

# 1. Train with the methods of the paper, as on images.
data = srjt.data.from_arrays(embeddings, labels, patients=patients, true_grades=true)
split = srjt.data.folds(data)[0]
for method in ("standard", "co-teaching+ours"):
    run = srjt.train(
        data, split=split, method=method, noise_rate=0.3, epochs=50, learning_rate=1e-3
    )
    probabilities, _ = run.probabilities(data.arrays[split.test])
    predicted = probabilities.mean(axis=0).argmax(axis=1)
    print(f"{method}: accuracy {np.mean(predicted == true[split.test]):.3f} on true grades")

# 2. Find wrong labels from the out-of-fold probabilities of any model, here scikit-learn's.
model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
folds = StratifiedGroupKFold(5, shuffle=True, random_state=0)  # patients stay together
out_of_fold = cross_val_predict(
    model, embeddings, labels, groups=patients, cv=folds, method="predict_proba"
)
estimate = srjt.noise.estimate_noise(labels, out_of_fold, groups=patients)
quality = srjt.noise.label_quality(
    labels, out_of_fold, transition=estimate.transition, prior=estimate.prior
)
worst = np.argsort(quality)[:80]
print(f"noise: estimated {estimate.rate:.2f}, true {wrong.mean():.2f}")
print(f"precision: {wrong[worst].mean():.2f} of the 80 most doubtful labels are wrong")

# 3. Or in one call, with srjt's own networks; the folder is what `srjt review` reads:
#    srjt.audit(data, out="audit")
