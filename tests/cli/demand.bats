# calibrate --side demand: what heads ask for; the same bytes whatever the threads and the interruptions.
load helper

setup_file() {
    prompts 12 >"$DIR/prompts.jsonl"
    demand "$DIR/run"
}

# The heads' shares of a run's first shard, as JSON.
shares() { "$CKVC" inspect "$1/pass-01-demand/shard-00000.h5" --json | grep -o '"shares":.*'; }

DEMAND=(--model "$MODEL" --window 16 --continuation 16 --side demand --budget 16,0.5 --shard-prompts 4 --holdout 0.3 -q)

# demand OUT [options]: over $DIR/prompts.jsonl
demand() { "$CKVC" calibrate "${DEMAND[@]}" --manifest "$DIR/prompts.jsonl" --out "$@"; }

@test "one pass, no scan; shares of mean 1 in every budget; prompts held out are in it" {
    "$CKVC" verify "$DIR/run"
    [ "$(find "$DIR/run" -name '*.h5' | wc -l)" -eq 3 ] # no others
    [ -z "$(find "$DIR/run" -name '*.log')" ]
    "$CKVC" inspect "$DIR/run" "$DIR"/run/pass-01-demand/*.h5 --json | check '
run, *shards = [json.loads(line) for line in sys.stdin]
assert [p["kind"] for p in run["passes"]] == ["demand"] and run["passes"][0]["complete"], run["passes"]
plan = run["plan"]
assert plan["side"] == "demand" and plan["floor"] == 0.05 and plan["recent"] == 8 and plan["budget"] == [16, 0.5], plan
assert plan["repeat"] == "Repeat the previous context exactly." and "bins" not in plan and "lambda" not in plan, plan
assert sum(s["prompts"] for s in shards) == 12 and all(s["records"] == 0 for s in shards)
for s in shards:
    heads = [h for layer in s["shares"] for h in layer]
    assert len(heads) == 12
    for b in 0, 1:
        assert abs(sum(h[b] for h in heads) / 12 - 1) < 1e-12, s["shares"]
    assert max(h[0] for h in heads) > 1.2 and min(h[0] for h in heads) == 9 / 16, s["shares"]'
}

@test "the same shards on one thread, on two, and with less memory" {
    demand "$DIR/one" --threads 1
    demand "$DIR/two" --threads 2 --memory 40M
    diff <(shard_sums "$DIR/run") <(shard_sums "$DIR/one")
    diff <(shard_sums "$DIR/run") <(shard_sums "$DIR/two")
    fails 71 --memory demand "$DIR/none" --memory 2M
    [[ $output == *scores* ]]
}

@test "killed at any moment, stopped, resumed: the same shards" {
    killed "0.05 0.1 0.15 0.2 0.25 0.3" demand "$DIR/killed"
    diff <(shard_sums "$DIR/run") <(shard_sums "$DIR/killed")
    "$CKVC" verify "$DIR/killed"
    for changed in "--queries 4" "--queries 0" "--demand-floor 0.3" "--recent 4" "--no-repeat" "--repeat Again." "--budget 24"; do
        fails 65 '' demand "$DIR/killed" --resume $changed
    done
}

@test "torn logs: what is cut off or damaged is done again" {
    cp -r "$DIR/run" "$DIR/torn"
    rm "$DIR/torn/pass-01-demand/shard-00002.h5"
    sed -i '/"shard":2/d' "$DIR/torn/journal.jsonl"
    head -c 300 /dev/urandom >"$DIR/torn/pass-01-demand/shard-00002.log"
    demand "$DIR/torn" --resume
    diff <(shard_sums "$DIR/run") <(shard_sums "$DIR/torn")
}

@test "a prompt's demand does not depend on the prompts beside it" {
    demand "$DIR/few" --limit 4
    [ -n "$(shares "$DIR/run")" ]
    [ "$(shares "$DIR/few")" = "$(shares "$DIR/run")" ]
}

@test "no repeat pass, another text, another floor: recorded, and other numbers" {
    demand "$DIR/next" --no-repeat
    demand "$DIR/text" --repeat "Once more:"
    demand "$DIR/floor" --demand-floor 0 --recent 4
    for r in next text floor; do
        "$CKVC" verify "$DIR/$r"
        [ "$(shares "$DIR/run")" != "$(shares "$DIR/$r")" ]
    done
    [[ $("$CKVC" inspect "$DIR/next" --json) != *'"repeat"'* ]]
    "$CKVC" inspect "$DIR/text" --json | grep -q '"repeat":"Once more:"'
    "$CKVC" inspect "$DIR/floor/pass-01-demand/shard-00000.h5" --json | grep -q '"recent":4'
    awk '{ sub(/}$/, ",\"continuation_tokens\":[300]}"); print }' "$DIR/prompts.jsonl" >"$DIR/short.jsonl"
    says 65 "no row to look at" "$CKVC" calibrate "${DEMAND[@]}" --manifest "$DIR/short.jsonl" --no-repeat --out "$DIR/short"
    "$CKVC" calibrate "${DEMAND[@]}" --manifest "$DIR/short.jsonl" --out "$DIR/short-repeat"
}

@test "query vectors: N of the prompt and of the continuation, of prompts that are fitted; with 0 nothing of them" {
    needs_h5py
    demand "$DIR/without" --queries 0
    demand "$DIR/many" --queries 15
    py "$DIR" <<'PYTHON'
import numpy as np
from unfolded import File
def read(run):
    plan, out, held, columns = load(f"{run}/run.json"), {}, set(), {}
    for path in sorted(glob.glob(f"{run}/pass-01-demand/*.h5")):
        s = File(path)
        ids = s["prompt/id"]
        held |= {i for i, split in zip(ids, s["prompt/split"]) if split == b"heldout"}
        columns.update({(path[-8:], k): s[f"prompt/{k}"].tobytes() for k in s.file["prompt"]})
        assert s.attrs.get("queries", 0) == plan.get("queries", 0) and ("query" in s.file) == ("queries" in plan), plan
        for p, part, at, v in zip(*(s[f"query/{k}"] for k in ("prompt", "part", "position", "vectors")) if "query" in s.file else ()):
            assert (at >= s["prompt/n_tokens"][p]) == part
            out[ids[p], part, at] = v.view("f2").astype("f4")
    return plan, out, held, columns
(plan, some, held, columns), (_, none, _, of_none), (_, many, _, of_many) = (read(f"{sys.argv[1]}/{r}") for r in ("run", "without", "many"))
assert plan["queries"] == 8 and not none and columns == of_none == of_many  # no other record notices
fitted = {i for i, *_ in some}
assert len(held) == 3 and len(fitted) == 9 and not held & fitted
for rows, n in (some, 8), (many, 15):
    assert collections.Counter(k[:2] for k in rows) == {(i, part): n for i in fitted for part in (0, 1)}
v = np.stack(list(some.values()))
assert v.shape[1:] == (4, 6, 32) and np.isfinite(v).all() and (np.abs(v).max(axis=(0, 3)) > 0.1).all()
shared = set(some) & set(many)  # a position's vectors do not depend on what else is logged
assert shared and all((some[k] == many[k]).all() for k in shared)
PYTHON
    "$CKVC" inspect "$DIR/run/pass-01-demand/shard-00000.h5" --json | check 's = json.load(sys.stdin); assert s["queries"] == 8 and s["query_rows"] % 16 == 0, s'
}

@test "usage: what does not go with demand, and budgets below what every head keeps" {
    refused() { fails 64 "$1" demand "$DIR/refused" "${@:2}" && [ ! -e "$DIR/refused" ]; }
    "$CKVC" scan "${OVER[@]}" --out "$DIR/scan" -q
    refused "leave out" --scan "$DIR/scan"
    refused "leave out" --sample-prompts 3
    refused "give 9 or more" --budget 8
    refused "give 9 or more" --budget 0.1
    refused "give 33 or more" --recent 32
    refused "one line of text" --repeat $'a\nb'
    refused "continuation" --no-repeat --continuation 1
    refused "floor" --demand-floor 1.5
    refused "queries" --queries 1025
}

@test "who reads runs: a report shows its prompts, what wants records or a scan says that there are none" {
    "$CKVC" report "$DIR/run" --out "$DIR/report" 2>/dev/null
    grep -q '"prompts"' "$DIR/report/report.json"
    fails 65 '' "$CKVC" calibrate "${OVER[@]}" --budget 16 --scan "$DIR/run" --out "$DIR/scanned" -q
}

@test "dry run: sizes and times, nothing written" {
    run -0 "$CKVC" calibrate "${DEMAND[@]}" --manifest "$DIR/prompts.jsonl" --dry-run
    [[ $output == *memory* && $output == *"demand"* ]]
    dry() { "$CKVC" calibrate "${DEMAND[@]}" --manifest "$DIR/prompts.jsonl" --dry-run --json "$@"; }
    dry | check 'd = json.load(sys.stdin); assert d["prompts"] == 12 and min(d["prompt_s"], d["prefill_s"]) > 0, d
assert d["query_bytes"] == 9 * 16 * (4 * 6 * 32 * 2 + 9) < d["disk_bytes"], d'
    dry --queries 0 | check 'd = json.load(sys.stdin); assert "query_bytes" not in d, d'
}

@test "beyond the context: in chunks where these fit, cut and said where they do not" {
    long_prompt() { check '
ids = [0] + [256 + (t * 7919 + t // 13 * 31) % 1200 for t in range(int(sys.argv[1]))]
print(json.dumps({"id": "long", "tokens": ids}))' "$1"; }
    cp -rL "$MODEL" "$DIR/model"
    sed -i 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 4500/' "$DIR/model/config.json"
    long_prompt 2320 >"$DIR/long.jsonl" # with instruction and continuation: twice is beyond 4,500, a chunk of 2,048 is not
    in_chunks() { "$CKVC" calibrate "${DEMAND[@]}" --model "$DIR/model" --manifest "$DIR/long.jsonl" --out "$@"; }
    run -0 in_chunks "$DIR/chunks" --threads 1
    [ -z "$output" ]
    in_chunks "$DIR/chunks-2" --threads 2
    diff <(shard_sums "$DIR/chunks") <(shard_sums "$DIR/chunks-2")
    long_prompt 3000 >"$DIR/long.jsonl"
    says 0 "cut to 2443 tokens" in_chunks "$DIR/cut"
    [ "$(wc -l <<<"$output")" -eq 1 ]
    "$CKVC" inspect "$DIR/cut" --json | grep -q '"max_tokens":2443'
}

@test "--side score: targets and features; the same shards on any threads and after kills; its own plan" {
    score() {
        "$CKVC" calibrate "${OVER[@]}" --side score --positions 32 --shard-prompts 4 -q --out "$@"
    }
    score "$DIR/score" --threads 2
    "$CKVC" verify "$DIR/score"
    killed "0.05 0.15 0.3" score "$DIR/score-killed" --threads 1
    diff <(shard_sums "$DIR/score") <(shard_sums "$DIR/score-killed")
    "$CKVC" inspect "$DIR/score" --json | check '
run = json.load(sys.stdin)
plan = run["plan"]
assert [p["kind"] for p in run["passes"]] == ["score"] and run["passes"][0]["complete"], run["passes"]
assert plan["side"] == "score" and plan["positions"] == 32 and plan["features"] == 1, plan
assert not {"floor", "recent", "budget", "bins"} & set(plan), plan'
    says 0 "pass: *score*prompt_s: " score "$DIR/no" --dry-run
    fails 64 "wanted 32 to" score "$DIR/no" --positions 31
}

@test "report refuses a run in which a shard has another shape than the first one" {
    needs_h5py
    demand "$DIR/three" --budget 0.25 # the lists of both are joined: one budget more
    cp -r "$DIR/run" "$DIR/damaged"
    cp "$DIR/three/pass-01-demand/shard-00001.h5" "$DIR/damaged/pass-01-demand"
    "$PY" - "$DIR/damaged" <<'PY' # its plan, and its sum in the journal, are made those of the run
import glob, h5py, hashlib, json, re, sys
first, second = sorted(glob.glob(sys.argv[1] + "/pass-01-demand/*.h5"))[:2]
with h5py.File(first) as a, h5py.File(second, "r+") as b:
    b.attrs.modify("plan", a.attrs["plan"])
data = open(second, "rb").read()
lines = open(sys.argv[1] + "/journal.jsonl").readlines()
for i, line in enumerate(lines):
    of = json.loads(line)
    if of.get("shard") == 1 and "sha256" in of:
        lines[i] = re.sub(r'"bytes":\d+', f'"bytes":{len(data)}', line.replace(of["sha256"], hashlib.sha256(data).hexdigest()))
open(sys.argv[1] + "/journal.jsonl", "w").writelines(lines)
PY
    fails 65 "shard 1 of pass pass-01-demand has other numbers" "$CKVC" report "$DIR/damaged" --out "$DIR/of-damaged"
    [ ! -e "$DIR/of-damaged" ]
    "$CKVC" report "$DIR/run" --out "$DIR/of-damaged" -q
}
