# The leak guard from the outside: manifest check --against, its record through calibrate and fit into a table, and what score says.
RANDOM_MODEL=1
load helper

# texts FIRST N: a manifest of N prompts of their own words; every third is held out.
texts() {
    awk -v first="$1" -v n="$2" 'BEGIN {
        split("stone river house light winter garden letter music window summer bridge forest paper silver morning valley", w, " ")
        s = 7 + first
        for (i = first; i < first + n; i++) {
            t = ""
            for (k = 0; k < 70; k++) {
                s = (s * 1103515245 + 12345) % 2147483648
                t = t w[1 + int(s / 65536) % 16] (k % 9 == 8 ? ". " : " ")
            }
            printf "{\"id\":\"p%d\",\"split\":\"%s\",\"text\":\"%s\"}\n", i, i % 3 ? "fit" : "heldout", t
        }
    }'
}

setup_file() {
    texts 0 6 >"$DIR/prompts.jsonl"
    texts 100 4 >"$DIR/clean.jsonl"
    # another person's file: the fifth prompt's words 10 to 39, in capitals, inside a longer field
    { echo '{"index":0,"context":"nothing of it","answers":["a","b"]}'
      sed -n 5p "$DIR/prompts.jsonl" | sed 's/.*"text":"//; s/".*//' | cut -d' ' -f10-39 | tr a-z A-Z |
          awk '{ printf "{\"index\":1,\"context\":\"Read this: %s -- then answer.\",\"answers\":[]}\n", $0 }'
    } >"$DIR/foreign.jsonl"
    calibrate "$DIR/bare"
    "$CKVC" fit "$DIR/bare" --out "$DIR/bare.ckvt" -q
}

@test "a planted span is found with id, line and text; exit 1; what is not shared is exit 0" {
    says 1 'span*"p4" line 5*foreign.jsonl:2 "" in "context"*30 words' "$CKVC" manifest check "$DIR/prompts.jsonl" --against "$DIR/clean.jsonl,$DIR/foreign.jsonl"
    [[ $output == *'1 lines and 1 prompts touched'* ]]
    [[ $output == *'1 of 4 prompts share text'* ]]
    run -0 "$CKVC" manifest check "$DIR/prompts.jsonl" --against "$DIR/clean.jsonl"
    gzip -k "$DIR/foreign.jsonl"
    "$CKVC" manifest check "$DIR/prompts.jsonl" --against "$DIR/foreign.jsonl.gz" --json 2>/dev/null | check '
leaks = json.load(sys.stdin)["leaks"]
assert leaks["record"]["against"][0]["shared_spans"] == 1, leaks
assert leaks["findings"][0]["prompt"] == "p4" and leaks["findings"][0]["words"] == 30, leaks'
}

@test "options of the guard that make no sense; broken evaluation files" {
    fails 64 '' "$CKVC" manifest check "$DIR/prompts.jsonl" --out "$DIR/x.json"
    run -64 "$CKVC" manifest check "$DIR/prompts.jsonl" --against "$DIR/clean.jsonl,$DIR/clean.jsonl"
    fails 66 '' "$CKVC" manifest check "$DIR/prompts.jsonl" --against "$DIR/none.jsonl"
    printf '{"a":1}\n{"a":' >"$DIR/cut.jsonl"
    fails 65 cut.jsonl:2: "$CKVC" manifest check "$DIR/prompts.jsonl" --against "$DIR/cut.jsonl"
    prompts 1 >"$DIR/ids.jsonl"
    fails 64 "ids.jsonl:1:*--model" "$CKVC" manifest check "$DIR/prompts.jsonl" --against "$DIR/ids.jsonl"
    "$CKVC" manifest check "$DIR/prompts.jsonl" --against "$DIR/ids.jsonl" --model "$MODEL" >/dev/null
}

@test "the record goes from check to run to table, and score says what it covers" {
    "$CKVC" manifest check "$DIR/prompts.jsonl" --against "$DIR/clean.jsonl,$DIR/prompts.jsonl" --out "$DIR/clean.json" >/dev/null
    run -73 "$CKVC" manifest check "$DIR/prompts.jsonl" --against "$DIR/clean.jsonl" --out "$DIR/clean.json"
    calibrate "$DIR/run" --leak-check "$DIR/clean.json"
    calibrate "$DIR/run" --leak-check "$DIR/clean.json" --resume
    fails 65 leak_check calibrate "$DIR/run" --resume
    "$CKVC" fit "$DIR/run" --out "$DIR/t.ckvt" -q
    score() {
        "$CKVC" score --model "$MODEL" --manifest "$1" --window 16 --continuation 16 --limit 2 --table "$2" -q 2>&1 >/dev/null
    }
    [ -z "$(score "$DIR/clean.jsonl" "$DIR/t.ckvt")" ]
    [ -z "$(score "$DIR/prompts.jsonl" "$DIR/t.ckvt")" ]
    texts 200 2 >"$DIR/third.jsonl"
    run score "$DIR/third.jsonl" "$DIR/t.ckvt"
    [ "${#lines[@]}" -eq 1 ]
    [[ $output == warning:*"not against the manifest scored here"* ]]
    # inspect says it in columns that fit a terminal of its own
    "$CKVC" inspect "$DIR/t.ckvt" >"$DIR/inspected"
    grep -q '^ *leaked_prompts: *0$' "$DIR/inspected"
    run -1 grep '{"' "$DIR/inspected"
    # a run without a record: the table says nothing, score does; fit takes one afterwards
    run "$CKVC" inspect "$DIR/bare.ckvt" --json
    [[ $output != *leak_check* ]]
    run score "$DIR/clean.jsonl" "$DIR/bare.ckvt"
    [[ $output == warning:*"not checked for leaks"* ]]
    "$CKVC" fit "$DIR/bare" --leak-check "$DIR/clean.json" --out "$DIR/after.ckvt" -q
    [ "$(content_id "$DIR/after.ckvt")" != "$(content_id "$DIR/bare.ckvt")" ]
    [ -z "$(score "$DIR/clean.jsonl" "$DIR/after.ckvt")" ]
    # the table keeps it through a transfer
    "$CKVC" transfer "$DIR/after.ckvt" --to-model "$MODEL" --out "$DIR/moved.ckvt" >/dev/null
    [ -z "$(score "$DIR/clean.jsonl" "$DIR/moved.ckvt")" ]
}

@test "leaks are said as an error, and the scores are printed all the same" {
    { cat "$DIR/clean.jsonl"; sed -n 2p "$DIR/prompts.jsonl" | sed 's/"p1"/"other"/'; } >"$DIR/dirty.jsonl"
    run -1 "$CKVC" manifest check "$DIR/prompts.jsonl" --against "$DIR/dirty.jsonl" --out "$DIR/dirty.json"
    run -0 calibrate "$DIR/dirty-run" --leak-check "$DIR/dirty.json"
    [[ $output == warning:*"not clean"* ]]
    "$CKVC" fit "$DIR/dirty-run" --out "$DIR/dirty.ckvt" -q
    says 0 '"reward"*error: *LEAK: 1 of its 4 prompts' "$CKVC" score --model "$MODEL" --manifest "$DIR/dirty.jsonl" --window 16 --continuation 16 --limit 1 --table "$DIR/dirty.ckvt" -q
    # a record of another manifest
    fails 65 '' calibrate "$DIR/no" --manifest "$DIR/clean.jsonl" --leak-check "$DIR/dirty.json"
    echo '{"schema":"other"}' >"$DIR/bad.json"
    fails 65 '' calibrate "$DIR/no" --leak-check "$DIR/bad.json"
}

@test "--clean: the lines that share nothing, byte for byte; the check of what is left passes" {
    # p0 p3 held out; p1, p2, p4 (shared with foreign.jsonl), p5; then a near copy of p2, a short text and its repeat
    { sed 's/{"id":"p1",/{ "id" : "p1",/' "$DIR/prompts.jsonl"
      sed -n 3p "$DIR/prompts.jsonl" | sed 's/"p2"/"near"/; s/"text":"/&Once more. /'
      printf '{"id":"s","text":"two words"}\n{"id":"t","text":"two words"}'; } >"$DIR/all.jsonl"
    says 0 "kept.jsonl: 6 of 9 lines, 3 left out" "$CKVC" manifest check "$DIR/all.jsonl" --against "$DIR/foreign.jsonl" --clean "$DIR/kept.jsonl"
    sed -n '1,4p;6p;8p' "$DIR/all.jsonl" | cmp - "$DIR/kept.jsonl"
    "$CKVC" manifest check "$DIR/kept.jsonl" --against "$DIR/foreign.jsonl,$DIR/kept.jsonl" >/dev/null
    # the last line ends as it did; nothing shared: the same bytes, exit 0; in JSON, too
    head -n 4 "$DIR/prompts.jsonl" | head -c -1 >"$DIR/open.jsonl"
    "$CKVC" manifest check "$DIR/open.jsonl" --against "$DIR/foreign.jsonl" --clean "$DIR/open-kept.jsonl" --json 2>/dev/null |
        check 'assert json.load(sys.stdin)["leaks"]["clean"] == {"prompts": 4, "left_out": 0}'
    cmp "$DIR/open.jsonl" "$DIR/open-kept.jsonl"
    # held-out prompts stay whatever they share
    run -0 "$CKVC" manifest check "$DIR/prompts.jsonl" --against "$DIR/open.jsonl" --clean "$DIR/held.jsonl"
    sed -n '1p;4,6p' "$DIR/prompts.jsonl" | cmp - "$DIR/held.jsonl"
}

@test "--clean and --out in one command: the record is the clean manifest's own, as a check of it makes it" {
    { cat "$DIR/prompts.jsonl"; sed -n 1p "$DIR/prompts.jsonl" | sed 's/"p0","split":"heldout"/"twin","split":"fit"/'; } >"$DIR/all.jsonl"
    says 1 "; --clean CLEAN.jsonl leaves them out, and --out is then of CLEAN" "$CKVC" manifest check "$DIR/all.jsonl" --against "$DIR/all.jsonl,$DIR/foreign.jsonl" --out "$DIR/dirty.json" --force
    "$CKVC" manifest check "$DIR/all.jsonl" --against "$DIR/all.jsonl,$DIR/foreign.jsonl" --clean "$DIR/one.jsonl" --out "$DIR/one.json"
    [ "$(wc -l <"$DIR/one.jsonl")" -eq 5 ]
    "$CKVC" manifest check "$DIR/one.jsonl" --against "$DIR/one.jsonl,$DIR/foreign.jsonl" --out "$DIR/again.json"
    cmp "$DIR/one.json" "$DIR/again.json"
    calibrate "$DIR/one" --manifest "$DIR/one.jsonl" --leak-check "$DIR/one.json"
    run -65 calibrate "$DIR/no" --manifest "$DIR/all.jsonl" --leak-check "$DIR/one.json"
    # nothing left to compile from: 65, and nothing is written
    "$CKVC" manifest check "$DIR/prompts.jsonl" --against "$DIR/prompts.jsonl" --clean "$DIR/fit.jsonl" >/dev/null
    sed 's/"split":"[a-z]*"/"split":"heldout"/; s/"id":"/"id":"twin-/' "$DIR/fit.jsonl" >"$DIR/twins.jsonl"
    says 65 "none is left that is not held out" "$CKVC" manifest check "$DIR/fit.jsonl" --against "$DIR/twins.jsonl" --clean "$DIR/left.jsonl" --out "$DIR/left.json"
    [ ! -e "$DIR/left.jsonl" ] && [ ! -e "$DIR/left.json" ]
    # nothing to leave out: the same, and the manifest under another name
    "$CKVC" manifest check "$DIR/one.jsonl" --against "$DIR/one.jsonl,$DIR/foreign.jsonl" --clean "$DIR/two.jsonl" --out "$DIR/two.json"
    cmp "$DIR/one.jsonl" "$DIR/two.jsonl"
    cmp "$DIR/one.json" "$DIR/two.json"
}

@test "--clean: what is in the way is refused before the work; nothing left is no file" {
    refuses() { fails "$1" '' "$CKVC" manifest check "$DIR/prompts.jsonl" "${@:2}"; } # STATUS OPTIONS...
    refuses 64 --clean "$DIR/x.jsonl"
    refuses 64 --against "$DIR/foreign.jsonl" --clean "$DIR/prompts.jsonl" --force
    refuses 64 --against "$DIR/foreign.jsonl" --clean "$DIR/foreign.jsonl" --force
    refuses 64 --against "$DIR/foreign.jsonl" --clean "$DIR/x.jsonl" --out "$DIR/x.jsonl"
    echo mine >"$DIR/mine.jsonl"
    refuses 73 --against "$DIR/foreign.jsonl" --clean "$DIR/mine.jsonl"
    [ "$(cat "$DIR/mine.jsonl")" = mine ]
    refuses 73 --against "$DIR/foreign.jsonl" --clean "$DIR/nowhere/x.jsonl"
    run -0 "$CKVC" manifest check "$DIR/prompts.jsonl" --against "$DIR/foreign.jsonl" --clean "$DIR/mine.jsonl" --force
    [ "$(wc -l <"$DIR/mine.jsonl")" -eq 5 ]
    sed 's/"p/"q/' "$DIR/clean.jsonl" >"$DIR/copy.jsonl"
    grep -v heldout "$DIR/clean.jsonl" >"$DIR/fit.jsonl"
    says 65 "none of its*is left" "$CKVC" manifest check "$DIR/fit.jsonl" --against "$DIR/copy.jsonl" --clean "$DIR/x.jsonl"
    # a disk that fills up: no file, nothing temporary
    says 0 "x.jsonl: writing failed" bash -c "trap '' XFSZ; ulimit -f 0; \"$CKVC\" manifest check \"$DIR/prompts.jsonl\" --against \"$DIR/foreign.jsonl\" --clean \"$DIR/x.jsonl\" | cat"
    [ ! -e "$DIR/x.jsonl" ]
    [ -z "$(ls "$DIR" | grep tmp)" ]
}

@test "report: the leak check of a table that is scored, passed, missing or with leaks" {
    verdict() { # NAME MANIFEST: a report on NAME.ckvt, scored on MANIFEST; state: of its check
        rm -rf "$DIR/$1-scores.jsonl" "$DIR/$1-report"
        "$CKVC" score --model "$MODEL" --manifest "$2" --window 16 --continuation 16 --limit 2 --table "$DIR/$1.ckvt" --policy identity -q \
            --out "$DIR/$1-scores.jsonl" 2>/dev/null
        "$CKVC" report "$DIR/$1.ckvt" --scores "$DIR/$1-scores.jsonl" --bootstrap 0 --out "$DIR/$1-report"
        state=$(check 'print(json.load(open(sys.argv[1]))["tables"][0]["leak_check"]["state"])' "$DIR/$1-report/report.json")
    }
    "$CKVC" manifest check "$DIR/prompts.jsonl" --against "$DIR/clean.jsonl" --out "$DIR/r-clean.json" >/dev/null
    { cat "$DIR/clean.jsonl"; sed -n 2p "$DIR/prompts.jsonl" | sed 's/"p1"/"other"/'; } >"$DIR/r-dirty.jsonl"
    "$CKVC" manifest check "$DIR/prompts.jsonl" --against "$DIR/r-dirty.jsonl" --out "$DIR/r-dirty.json" >/dev/null 2>&1 || [ $? -eq 1 ]
    "$CKVC" fit "$DIR/bare" --leak-check "$DIR/r-clean.json" --out "$DIR/r-clean.ckvt" -q
    "$CKVC" fit "$DIR/bare" --leak-check "$DIR/r-dirty.json" --out "$DIR/r-dirty.ckvt" -q
    verdict r-clean "$DIR/clean.jsonl"
    [ "$state" = passed ]
    grep -q 'Leak check passed: none of its 4 prompts shares 13 words in a row' "$DIR/r-clean-report/report.html"
    verdict bare "$DIR/clean.jsonl"
    [ "$state" = "not checked" ]
    grep -q 'Its prompts were not checked for leaks' "$DIR/bare-report/report.html"
    says 0 "do not deploy: T1 *At least 1 of its 4 prompts share text or ids with the prompts scored here" verdict r-dirty "$DIR/r-dirty.jsonl"
    verdict r-clean "$DIR/r-dirty.jsonl"
    [ "$state" = "not compared" ]
    # what is required is said when the report is there: two prompts without a reference are no reason to deploy
    says 1 "T1 *: do not deploy, wanted deploy" "$CKVC" report "$DIR/r-clean.ckvt" --scores "$DIR/r-clean-scores.jsonl" --require deploy --out "$DIR/required"
    [ -s "$DIR/required/report.html" ]
}

@test "compile scores held-out prompts, so it says what the check covers" {
    local loop=(--mode uniform --ranking paper --holdout 0.4 --rounds 1 --variants 8)
    run -0 "$CKVC" compile "${SMALL[@]}" --manifest "$DIR/prompts.jsonl" --out "$DIR/loop" "${loop[@]}"
    [ "$(grep -c '^warning: .*loop/table.ckvt: .*not checked for leaks' <<<"$output")" -eq 1 ]
    "$CKVC" manifest check "$DIR/prompts.jsonl" --against "$DIR/prompts.jsonl" --holdout 0.4 --out "$DIR/own.json" >/dev/null
    run -0 "$CKVC" compile "${SMALL[@]}" --manifest "$DIR/prompts.jsonl" --out "$DIR/checked" --leak-check "$DIR/own.json" "${loop[@]}"
    [[ $output != *leak* ]]
    # a probe that fits nothing has the record all the same
    run -0 "$CKVC" compile "${SMALL[@]}" --manifest "$DIR/prompts.jsonl" --out "$DIR/grid" --leak-check "$DIR/own.json" "${loop[@]}" --probe grid-search \
        --head-grid 0.8,1,1.2 --gate-grid 0.8,0.9,1
    [[ $output != *leak* ]]
    # nothing held out (by the split either), nothing said
    sed 's/"heldout"/"fit"/' "$DIR/prompts.jsonl" >"$DIR/all.jsonl"
    run -0 "$CKVC" compile "${SMALL[@]}" --manifest "$DIR/all.jsonl" --out "$DIR/none" --mode uniform --ranking paper --rounds 1 --variants 8
    [[ $output != *leak* ]]
}
