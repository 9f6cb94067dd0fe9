# Tables that come with the program: the list, one that is written, and refusals.
load helper

@test "tables: the list has each with model, lengths, losses, bytes and licence, in both printings" {
    "$CKVC" tables --json >"$DIR/all.json"
    "$CKVC" tables >"$DIR/all.txt"
    check '
listed, text = load(sys.argv[1]), open(sys.argv[2]).read()
described = load("docs/results/tables.json")
assert {"qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b", "smollm2-135m", "smollm2-135m-lengths"} <= {t["name"] for t in listed}, listed
assert [{k: t[k] for k in t if k not in ("bytes", "file")} for t in listed] == described
for t in listed:
    assert t["bytes"] == os.path.getsize("docs/results/" + t["name"] + "/table.ckvt") and os.path.exists(t["file"]), t
    for said in (t["name"], t["model"], t["licence"], str(t["bytes"]), str(t["lengths"][1]), t["serves"], *("%.3f" % loss["kl"] for loss in t["losses"])):
        assert said in text, said' "$DIR/all.json" "$DIR/all.txt"
}

@test "tables NAME: what the list says of it, and in text the command that made it" {
    "$CKVC" tables smollm2-135m >"$DIR/one.txt"
    "$CKVC" tables smollm2-135m --json >"$DIR/one.json"
    "$CKVC" tables --json >"$DIR/all.json"
    "$CKVC" tables >"$DIR/all.txt"
    check '
one, text = load(sys.argv[1] + "one.json"), open(sys.argv[1] + "one.txt").read()
assert one == [t for t in load(sys.argv[1] + "all.json") if t["name"] == "smollm2-135m"], one
assert one[0]["made"] in text and one[0]["made"] not in open(sys.argv[1] + "all.txt").read() and "qwen" not in text, text
assert "compress(model, \"smollm2-135m\", budget=0.25)" in text and "vllm serve" not in text and "compile again with --features 2" in text, text' "$DIR/"
    says 0 "KL 0.034 on 48 prompts, with one length for all 0.111*vllm serve DIR *\"table\": \"smollm2-135m-lengths\"*compact(llm, 0, \"smollm2-135m-lengths\", budget=0.25)" \
        "$CKVC" tables smollm2-135m-lengths
}

@test "tables NAME --out: the very table, which verify accepts; overwritten with --force alone" {
    run -0 "$CKVC" tables smollm2-135m --out "$DIR/t.ckvt"
    [[ $output == "$DIR/t.ckvt: smollm2-135m, for SmolLM2-135M-Instruct, "*"compress(model, \"$DIR/t.ckvt\", budget=0.25)"* ]]
    cmp "$DIR/t.ckvt" docs/results/smollm2-135m/table.ckvt
    "$CKVC" verify "$DIR/t.ckvt"
    fails 73 "$DIR/t.ckvt: exists already" "$CKVC" tables qwen2.5-coder-0.5b --out "$DIR/t.ckvt"
    cmp "$DIR/t.ckvt" docs/results/smollm2-135m/table.ckvt
    [ "$("$CKVC" tables qwen2.5-coder-0.5b --out "$DIR/t.ckvt" --force --json | check 'print(json.load(sys.stdin)["content_id"])')" = "$(content_id "$DIR/t.ckvt")" ]
}

@test "tables: an unknown name, a missing name, two names, and no tables beside the program" {
    fails 64 "there are ckvc-tiny-8l, " "$CKVC" tables smollm --out "$DIR/no.ckvt"
    fails 64 "which table" "$CKVC" tables --out "$DIR/no.ckvt"
    fails 64 "got 2 names" "$CKVC" tables a b --out "$DIR/no.ckvt"
    mkdir -p "$DIR/alone/bin"
    cp "$CKVC" "$DIR/alone/bin/ckvc"
    fails 66 "ckvc compile --model DIR" "$DIR/alone/bin/ckvc" tables
    [ ! -e "$DIR/no.ckvt" ]
}

@test "tables: a description or a table that is not as it must be is refused" {
    local share=$DIR/wrong/share/ckvc/python/ckvc/tables
    mkdir -p "$DIR/wrong/bin" "$share/a"
    cp "$CKVC" "$DIR/wrong/bin/ckvc"
    cp docs/results/smollm2-135m/table.ckvt "$share/a"
    echo '[{"name":"a","content_id":"00"}]' >"$share/tables.json"
    fails 65 "tables.json says 00" "$DIR/wrong/bin/ckvc" tables a --out "$DIR/no.ckvt"
    echo '[{"name":"../a","content_id":"00"}]' >"$share/tables.json"
    fails 65 "entry 0" "$DIR/wrong/bin/ckvc" tables
    echo '{}' >"$share/tables.json"
    fails 65 "wanted a list" "$DIR/wrong/bin/ckvc" tables
    echo '[{"name":"b","content_id":"00"}]' >"$share/tables.json"
    fails 66 "b/table.ckvt" "$DIR/wrong/bin/ckvc" tables
    [ ! -e "$DIR/no.ckvt" ]
}

@test "scripts/tables.sh: the command that makes each table again, of its model, or of the one that is named" {
    run -0 env DRY_RUN=1 scripts/tables.sh "$CKVC" "$DIR/again"
    [ "${#lines[@]}" -eq "$("$CKVC" tables --json | check 'print(len(json.load(sys.stdin)))')" ]
    for line in "${lines[@]}"; do
        [[ $line =~ ^([^:]+):\ .*\ scripts/results-real.sh\ "$(realpath "$CKVC")"\ ([^ ]+)\ "$(realpath "$DIR")"/again/([^ ]+)\  ]]
        [ "${BASH_REMATCH[1]}" = "${BASH_REMATCH[3]}" ]
        model=${BASH_REMATCH[2]}
        [[ $model =~ ^build/models/([^/]+)/([^/]+)$ ]] || [ -e "$model/config.json" ] # one that is fetched, or is embedded
        [[ $model == models/* ]] || grep -q "^=${BASH_REMATCH[1]}	${BASH_REMATCH[2]}	" scripts/models.txt
    done
    run -0 env DRY_RUN=1 scripts/tables.sh "$CKVC" "$DIR/again" smollm2-135m
    [[ ${#lines[@]} -eq 1 && $output == "smollm2-135m: "* ]]
    run -64 scripts/tables.sh "$CKVC" "$DIR/again" smollm
    [[ $output == "tables.sh: no table smollm; there are "* ]]
}
