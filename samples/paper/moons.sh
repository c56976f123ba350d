#!/bin/sh
# The paper's Moon table by the command line alone: two hidden layers of ten, ten seeds, accuracy,
# squared error of the probability and log-loss on 150 rows after 5, 50, 500, 1,000 and 1,350 rows.
#
#     sh samples/paper/moons.sh                                    labels are exact
#     sh samples/paper/moons.sh --noise 0.1 --hidden-noise 0.01    with a noise on every layer
#
# From the root of the repository, kbnn and python on the path; options go to `kbnn train`.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for seed in 0 1 2 3 4 5 6 7 8 9; do
    python - "$work" "$seed" <<'MAKE'
import sys
from samples import make

folder, seed = sys.argv[1], int(sys.argv[2])
x, label = make.moons(1500, seed=1000 + seed)
marks = [0, 5, 50, 500, 1000, 1350, 1500]
for first, last in zip(marks, marks[1:]):
    with open(f"{folder}/{last}.csv", "w") as file:
        file.write("x1,x2,label\n")
        for (a, b), c in zip(x[first:last].tolist(), label[first:last] > 0):
            file.write(f"{a},{b},{str(c).lower()}\n")
MAKE
    for rows in 5 50 500 1000 1350; do
        kbnn train "$work/$rows.csv" --preset paper --layers 10,10 --seed "$seed" -q \
            -m "$work/$seed.npz" "$@"
        kbnn evaluate "$work/$seed.npz" "$work/1500.csv" --json > "$work/$rows.$seed.json"
    done
done
python - "$work" <<'SHOW'
import json
import sys
import numpy as np

print("  rows  accuracy %      squared error  log-loss")
for rows in (5, 50, 500, 1000, 1350):
    found = [json.load(open(f"{sys.argv[1]}/{rows}.{seed}.json")) for seed in range(10)]
    accuracy, brier, loss = (
        np.array([one[name] for one in found]) for name in ("accuracy", "brier", "log_loss")
    )
    spread = 100 * accuracy.std(ddof=1)
    print(f"{rows:6,}  {100 * accuracy.mean():.2f} ± {spread:.2f}"
          f"    {brier.mean():.3f}          {loss.mean():.3f}")
SHOW
