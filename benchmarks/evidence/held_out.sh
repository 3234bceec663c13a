# The last word: what was settled on 60 % of the patients, once on the other 40 %. Three draws of noise and networks.
#
#     bash benchmarks/evidence/held_out.sh [eyepacs | deepdrid]
#
# Run from a folder that holds lite0.safetensors, eyepacs256/ and deepdrid256/ (after halves.py); results in held_out/.
# Against srjt stand, for each setting, the paper's methods with the best figures in results/tables/.
set -e
only=$1 here=$(dirname "$0") jobs=${JOBS:-8}
case $only in ''|eyepacs|deepdrid) ;; *) echo "eyepacs or deepdrid, or neither; got $only" >&2; exit 2;; esac

compare() {  # data, name of the study, noise, methods
    [ -z "$only" ] || [ "$only" = "$1" ] || return 0
    srjt study run "${1}256/labels.csv" --config "$here/$1.yaml" --splits "${1}256/held_out_splits.csv" \
        --noise "$3" --methods "srjt $4" --seed 0 --seed 1 --seed 2 --jobs "$jobs" --out "held_out/$2"
    python "$here/predictions.py" "held_out/$2" --out "held_out/predictions-$1"
}

compare eyepacs eyepacs none "sord standard mixup"
compare deepdrid quasi-0.4 quasi:0.4 "co-teaching+ours f-correction"
compare deepdrid truncated-0.4 truncated:0.4 "f-correction label-smooth"
compare deepdrid quasi-0.2 quasi:0.2 "co-teaching codis+ours"
compare deepdrid truncated-0.2 truncated:0.2 "f-correction"
