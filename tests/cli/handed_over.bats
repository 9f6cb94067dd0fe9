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

@test "status: a journal that speaks of 268 million shards is refused, and 200,000 lines in any order take no time" {
    cp -r "$DIR/run" "$DIR/many"
    journal() { # journal PROMPTS KEYS: the pass is begun, and then lines with these members, of 200,000 down to 1
        py "$DIR" "$@" <<'EOF'
folder, prompts, keys = sys.argv[1], int(sys.argv[2]), eval(sys.argv[3])
begin = next(l for l in rows_of(folder + "/run/journal.jsonl") if l["pass"] != "scan" and "n_prompts" in l)
begin.update(n_prompts=prompts, shard_prompts=1)
with open(folder + "/many/journal.jsonl", "w") as f:
    f.write(json.dumps(begin) + "\n")
    f.writelines(json.dumps({"pass": begin["pass"], **keys, keys["of"]: n}) + "\n" for n in range(200000, 0, -1))
EOF
    }
    local look=(timeout 20 "$CKVC" status "$DIR/many") shard='{"of": "shard", "backend": "", "bytes": 1, "prompts": 1, "rows": 1, "sha256": "0" * 64}'
    journal $((1 << 28)) "$shard"
    fails 65 "journal.jsonl:1: not a line that begins a pass" "${look[@]}"
    journal 300000 '{"of": "prompt", "id": "x", "reason": "y"}'
    says 0 300000 "${look[@]}"
    journal 300000 "$shard"
    fails 65 "shard-00001.h5: the journal says it is published" "${look[@]}"
    sed -i '$p' "$DIR/many/journal.jsonl"
    fails 65 "shard 1 of pass-01-both is published a second time" "${look[@]}"
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
