# The card of a table for a model hub (`ckvc report --card`): what it says, against the report and the table, and what is refused.
load helper

setup_file() {
    prompts 14 >"$DIR/prompts.jsonl"
    "$CKVC" compile "${OVER[@]}" --bytes 0.12,0.3 --holdout 0.5 --features 2 --label words -q --out "$DIR/run" --json >/dev/null
    "$CKVC" fit "$DIR/run" --mode lengths --features 2 --out "$DIR/lengths.ckvt" --no-prov -q 2>/dev/null
}

@test "report --card: the front matter of a hub, the report's numbers with their intervals, and the table's own facts" {
    run -0 "$CKVC" report "$DIR/run/table.ckvt" "$DIR/run" --out "$DIR/report" --card "$DIR/README.md" --base-model some-org/tiny_4l --licence mit
    [[ $output == *"ckvc report: $DIR/README.md"* ]]
    "$CKVC" inspect "$DIR/run/table.ckvt" --json >"$DIR/what.json"
    py "$DIR" <<'PYTHON'
folder = sys.argv[1]
card, report, what = open(f"{folder}/README.md").read(), load(f"{folder}/report/report.json"), load(f"{folder}/what.json")
front, body = card.removeprefix("---\n").split("\n---\n", 1)
assert front.split("\n") == ["license: mit", "base_model: some-org/tiny_4l", "library_name: ckvc", "tags:", "- kv-cache", "- kv-cache-compression"], front
rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in body.split("\n") if line.startswith("|")]
table, = report["tables"]
judged = table["verdict"]["budgets"]
assert len(judged) == 2 and judged[0]["kl"]["lo"] is not None, judged
interval = lambda x: f"{x['mean']:.3f} ({x['lo']:.3f} to {x['hi']:.3f})"
for row, at in zip(rows[2:], judged):
    assert row == [f"{at['budget']:.4g} of the prompt", at["word"], interval(at["loss"]), interval(at["kl"]), f"{at['prompts']:.0f}",
                   f"{at['cache']['bytes'] / 1000:.0f} of {at['cache']['all_bytes'] / 1000:.0f} kB"], (row, at)
    assert "\n- %s\n" % at["says"].replace("`", "'") in body
for row, at in zip(rows[6:], what["bytes"]):
    held = "/".join(dict.fromkeys((at["keys"], at["values"])))
    assert row[1] == f"a share of {at['bytes']:g}: {at['budget']:.3g} of the entries, in {held}" and row[2:] == ["heads", "learned"], (row, at)
assert len(rows) == 8
prompts = [p["T"] for p in report["runs"][0]["prompts"] if not p["heldout"]]
said = table["verdict"]["objection"].replace("`", "'")
for words in (f"is **{table['verdict']['word']}**. {said}\n", f"has {os.path.getsize(f'{folder}/run/table.ckvt')} bytes",
              f"`{what['content_id']}`", f"`{what['meta']['fingerprint']}`", f"`{what['model']['sketch']}`", f"`{what['meta']['model_name']}`",
              f"whose {what['shape']['n_layers']} layers of full attention have {what['shape']['n_kv_heads']} KV heads each", "- ckvc %s wrote the table.\n" % report["ckvc_version"],
              "the label `words`", f"from {what['meta']['counts']['demand']['prompts']} prompts", f"{min(prompts)} to {max(prompts)} tokens", "\nwindow: 16\n",
              f"chosen on {what['meta']['select']['prompts']} other prompts", 'ckvc.hf.compress(model, "table.ckvt", bytes=%g)' % what["bytes"][-1]["bytes"], "`org/name@COMMIT`"):
    assert words in body, words
assert folder not in card and "vllm serve" not in card  # its heads keep different numbers
PYTHON
}

@test "report --card: the line of vllm where vLLM can hold the table; without scores, run and names it says so" {
    "$CKVC" report "$DIR/lengths.ckvt" --out "$DIR/bare" --card "$DIR/bare.md" -q
    grep -q "^license: unknown$" "$DIR/bare.md"
    run ! grep -e "^base_model" -e "^| budget | verdict" -e " to .* tokens" "$DIR/bare.md"
    grep -qF "vllm serve MODEL --additional-config '{\"ckvc\": {\"table\": \"table.ckvt\", \"budget\": " "$DIR/bare.md"
    grep -qF "is **no verdict**. No scores were given" "$DIR/bare.md"
}

@test "report --card: what a table says of itself neither leaves its code nor becomes a line" {
    py "$DIR" tests/golden/table/learned.ckvt <<'PYTHON'
sys.path.insert(0, "python")
import numpy as np
from ckvc import Table, exchange
t = Table.read(sys.argv[2])
meta = json.dumps(t.meta | {"model_name": "a` <b>\n---\n# c", "label": "`d`"}).encode()
open(f"{sys.argv[1]}/evil.ckvt", "wb").write(exchange.table_bytes("evil", exchange.arrays_of(t) | {"META": np.frombuffer(meta, "u1")}))
PYTHON
    "$CKVC" report "$DIR/evil.ckvt" --out "$DIR/evil" --card "$DIR/evil.md" -q
    grep -qF "# A KV-cache table for \`a' <b> --- # c\`" "$DIR/evil.md"
    grep -qF "has the label \`'d'\`." "$DIR/evil.md"
    [ "$(grep -c '^---$' "$DIR/evil.md")" -eq 2 ]
}

@test "report --card: refused before any work are two tables, names that no hub takes, and a file that is there" {
    card() { "$CKVC" report "$DIR/lengths.ckvt" --out "$DIR/no" --card "$DIR/no.md" "$@"; }
    fails 64 "--card is of one table, and 2 are given" card "$DIR/run/table.ckvt"
    fails 64 "--card is of one table, and 0 are given" "$CKVC" report "$DIR/run" --out "$DIR/no" --card "$DIR/no.md"
    for name in tiny org/ /tiny org/a/b $'org/a\nlicense: x' "org/a: b" -- ../a; do fails 64 "--base-model: got " card --base-model="$name"; done
    for name in "" "a b" mit/x $'mit\nx' -mit; do fails 64 "--licence: got " card --licence="$name"; done
    fails 64 "give --card FILE" "$CKVC" report "$DIR/lengths.ckvt" --out "$DIR/no" --licence mit
    fails 64 "give --card FILE" "$CKVC" report "$DIR/lengths.ckvt" --out "$DIR/no" --base-model a/b
    fails 64 "--card" "$CKVC" report "$DIR/lengths.ckvt" --out "$DIR/no" --card "$DIR/lengths.ckvt"
    echo mine >"$DIR/mine.md"
    fails 73 "$DIR/mine.md: exists already" "$CKVC" report "$DIR/lengths.ckvt" --out "$DIR/no" --card "$DIR/mine.md"
    [ "$(cat "$DIR/mine.md")" = mine ] && [ ! -e "$DIR/no" ] && [ ! -e "$DIR/no.md" ]
    "$CKVC" report "$DIR/lengths.ckvt" --out "$DIR/no" --card "$DIR/mine.md" --force -q
    grep -q "library_name: ckvc" "$DIR/mine.md"
}
