# Folders and files that somebody else made: what stands in them leads to no file of the user's, takes no time of its own choosing, and moves
# no terminal's cursor.
load helper

setup_file() {
    prompts 8 >"$DIR/prompts.jsonl"
    calibrate "$DIR/run" --limit 4
    head -c 4096 /dev/zero | tr '\0' 'x' >"$DIR/mine"
}

SCORE=(--model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 8 --policy recent -q)

# handed_over NAME: a copy of the run whose last shard is not published yet, as one hands it over with a stopped run
handed_over() {
    cp -r "$DIR/run" "$DIR/$1"
    : >"$DIR/$1/lock"
    head -1 "$DIR/run/journal.jsonl" >"$DIR/$1/journal.jsonl"
    rm "$DIR/$1"/pass-*/*
}

# mine_stays COMMAND...: ends with 73 in one line, soon, and leaves the user's file alone
mine_stays() {
    fails 73 '' timeout 20 "$@"
    [ "$(stat -c %s "$DIR/mine")" -eq 4096 ] && [ ! -e "$DIR/nowhere" ]
}

@test "a run handed over with links in place of its files writes no file of the user's, and a pipe does not hang it" {
    local name target
    for name in lock journal.jsonl pass-01-both scan; do
        for target in ../mine ../nowhere ../elsewhere pipe; do
            handed_over linked
            mkdir "$DIR/elsewhere"
            rm -r "$DIR/linked/$name"
            if [ $target = pipe ]; then mkfifo "$DIR/linked/$name"; else ln -s $target "$DIR/linked/$name"; fi
            if [ "$name $target" = "journal.jsonl ../mine" ]; then cp "$DIR/mine" "$DIR/kept" && : >"$DIR/mine"; fi # no line, so it would be appended to
            run timeout 20 "$CKVC" calibrate "${SMALL[@]}" --manifest "$DIR/prompts.jsonl" --limit 4 --out "$DIR/linked" --resume
            [[ " 73 65 66 " == *" $status "* ]] && one_line || { echo "$name $target: $status $output"; return 1; }
            [ "$name $target" != "journal.jsonl ../mine" ] || { [ ! -s "$DIR/mine" ] && mv "$DIR/kept" "$DIR/mine"; }
            [ "$(stat -c %s "$DIR/mine")" -eq 4096 ] && [ ! -e "$DIR/nowhere" ] && [ -z "$(ls "$DIR/elsewhere")" ]
            rm -r "$DIR/linked" "$DIR/elsewhere"
        done
    done
    handed_over parts
    rm "$DIR/parts/journal.jsonl"
    ln -s ../mine "$DIR/parts/lock-0-of-2"
    mine_stays "$CKVC" scan --model "$MODEL" --manifest "$DIR/prompts.jsonl" --window 16 --continuation 16 --out "$DIR/parts" --shard 0/2 -q --resume
    rm "$DIR/parts/lock-0-of-2"
    ln -s ../mine "$DIR/parts/journal-0-of-2.jsonl"
    : >"$DIR/parts/lock"
    run timeout 20 "$CKVC" merge "$DIR/parts"
    [ "$status" -eq 65 ] && [ "$(stat -c %s "$DIR/mine")" -eq 4096 ]
}

@test "what is no lock of a run and no checkpoint of a score is not cut off" {
    handed_over locked
    cp "$DIR/mine" "$DIR/locked/lock"
    fails 73 "is no lock of a run" "$CKVC" calibrate "${SMALL[@]}" --manifest "$DIR/prompts.jsonl" --limit 4 --out "$DIR/locked" --resume
    cmp "$DIR/mine" "$DIR/locked/lock"
    ln -s mine "$DIR/a.jsonl.checkpoint"
    mine_stays "$CKVC" score "${SCORE[@]}" --out "$DIR/a.jsonl"
    mine_stays "$CKVC" score "${SCORE[@]}" --out "$DIR/a.jsonl" --force
    rm "$DIR/a.jsonl.checkpoint"
    mkfifo "$DIR/a.jsonl.checkpoint"
    mine_stays "$CKVC" score "${SCORE[@]}" --out "$DIR/a.jsonl"
    rm "$DIR/a.jsonl.checkpoint"
    for text in "$(cat "$DIR/mine")" '{"mine":"without a newline"}' $'{"mine":"a whole line"}\n'; do
        printf '%s' "$text" >"$DIR/a.jsonl.checkpoint"
        fails 73 "is no checkpoint of this score" "$CKVC" score "${SCORE[@]}" --out "$DIR/a.jsonl"
        [ "$(cat "$DIR/a.jsonl.checkpoint")" = "${text%$'\n'}" ]
    done
    printf 'dam{aged\n{}\n' >"$DIR/a.jsonl.checkpoint" # which --resume cannot read, and --force begins anew
    fails 65 '' "$CKVC" score "${SCORE[@]}" --out "$DIR/a.jsonl" --resume
    "$CKVC" score "${SCORE[@]}" --out "$DIR/a.jsonl" --force
    [ ! -e "$DIR/a.jsonl.checkpoint" ]
}

@test "status: a journal that speaks of 268 million shards, or of 200,000 in any order, takes no time" {
    cp -r "$DIR/run" "$DIR/many"
    py "$DIR/many" <<'EOF'
run = sys.argv[1]
lines = rows_of(run + "/journal.jsonl")
for line in lines:
    if "n_prompts" in line:
        line.update(n_prompts=1 << 28, shard_prompts=1)
begin, skip = next(l for l in lines if l["pass"] != "scan"), {"pass": "pass-01-both", "id": "x", "reason": "y"}
with open(run + "/journal.jsonl", "w") as f:
    f.write(json.dumps(begin) + "\n")
    f.writelines(json.dumps(dict(skip, prompt=n)) + "\n" for n in range(200000, 0, -1))
EOF
    (ulimit -v 4000000 && says 0 268435456 timeout 20 "$CKVC" status "$DIR/many")
    py "$DIR/many" <<'EOF'
run = sys.argv[1]
lines = open(run + "/journal.jsonl").readlines()
shard = {"backend": "", "bytes": 1, "pass": "pass-01-both", "prompts": 1, "rows": 1, "sha256": "0" * 64}
with open(run + "/journal.jsonl", "w") as f:
    f.write(lines[0])
    f.writelines(json.dumps(dict(shard, shard=n)) + "\n" for n in range(200000, 0, -1))
EOF
    fails 65 "is not there" timeout 20 "$CKVC" status "$DIR/many"
    sed -i '$p' "$DIR/many/journal.jsonl"
    fails 65 "shard 1 of pass-01-both is published a second time" timeout 20 "$CKVC" status "$DIR/many"
}

@test "controls, C1 and marks that turn writing round reach no terminal: errors, warnings, status, inspect, perplexity" {
    cp -r "$DIR/run" "$DIR/dressed"
    py "$DIR" <<'EOF'
folder = sys.argv[1]
dress = "\x1b[31m\x9b1m\u202e\u2066\u200f\u061c\x07\r"
run = folder + "/dressed"
plan = load(run + "/run.json")
plan.update(model_name="m" + dress, **{"key" + dress: "value" + dress, "list": [{"a" + dress: "b" + dress}]})
json.dump(plan, open(run + "/run.json", "w"))
lines = [dict(l, **{"k" + dress: dress}) for l in rows_of(run + "/journal.jsonl")]
for line in lines:
    if "backend" in line:
        line["backend"] = "b" + dress
lines.append({"pass": lines[-1]["pass"], "prompt": 0, "id": "id" + dress + "\nall parts are there", "reason": dress})
open(run + "/journal.jsonl", "w").writelines(json.dumps(l) + "\n" for l in lines)
prompt = rows_of(folder + "/prompts.jsonl")[0]
prompt.update(id="id\x9b\u202e\u200f", source="s\x9b\u202e")
json.dump(prompt, open(folder + "/dressed.jsonl", "w"))
EOF
    shown() { # one_shown COMMAND...: nothing of it moves a cursor; what it is about is there
        run "${@:2}"
        [[ $output == *$1* ]] || { echo "$output"; return 1; }
        check 'text = sys.stdin.buffer.read().decode()
assert not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]", text), ascii(text)' <<<"$output"
    }
    shown 'prompt "id?' "$CKVC" status "$DIR/dressed"
    [[ $output != *$'\nall parts are there'* ]]
    shown 'key?' "$CKVC" inspect "$DIR/dressed"
    shown 'id?' "$CKVC" perplexity --model "$MODEL" --manifest "$DIR/dressed.jsonl" -q
    shown 'budget 4096 ' "$CKVC" score "${SCORE[@]}" --manifest "$DIR/dressed.jsonl" --budget 4096 --out "$DIR/dressed-out"
    shown 'a?b??' "$CKVC" inspect "$(printf 'a\xc2\x9bb\x1b\x9b')"
    shown 'a?b' "$CKVC" "$(printf 'a\xe2\x80\xaeb')"
}
