# The contract of the command line: help, exit codes, one-line errors, configuration, streams.
RANDOM_MODEL=1
load helper
setup() {
    DIR=$BATS_TEST_TMPDIR
    prompts 2 >"$DIR/p.jsonl"
}

@test "every verb has help, the same by both names, with examples and defaults" {
    verbs=$("$CKVC" help | sed -nE 's/^  ([a-z]+) .*/\1/p')
    [ "$(wc -w <<<"$verbs")" -eq 18 ]
    for v in $verbs; do
        says 0 "usage: ckvc $v*examples:" "$CKVC" "$v" --help
        [ "$output" = "$("$CKVC" help "$v")" ]
        [ "$(grep -c '^  .\{4\}--[a-z]' <<<"$output")" -le 18 ]
        [ "$("$CKVC" "$v" --help all)" = "$("$CKVC" help "$v" all)" ]
    done
    # few options are shown at first, and where the rest is; a name of them that is no option would be a mistake
    run "$CKVC" compile --help
    [[ $output == *"options: ckvc compile --help all"* && $output != *--cql-alpha* ]]
    shown=$(grep -c '^  .\{4\}--[a-z]' <<<"$output")
    [[ $output == *"$(($("$CKVC" compile --help all | grep -c '^  .\{4\}--[a-z]') - shown - 1)) more options"* ]]
    [[ $("$CKVC" compile --help all) == *--cql-alpha* ]]
    py "$CKVC" <<'PY'
for path in glob.glob("cmd/cmd_*.c"):
    for verb, common in re.findall(r'\.name = "([^"]*)",(?:(?!\.name = ).)*?\.common =((?:\s*"[^"]*")+)', open(path).read(), re.S):
        shown = subprocess.run([sys.argv[1], "help", *verb.split(), "all"], capture_output=True, text=True).stdout
        for name in "".join(re.findall('"([^"]*)"', common)).split():
            assert re.search(rf"^  .{{4}}--{name}( |$)", shown, re.M), (verb, name)
PY
    run -64 "$CKVC"
    [ "$output" = "$("$CKVC" help)" ]
}

@test "words, values and names that are not UTF-8, or not on one line" {
    fails 64 "byte 1 is not UTF-8" "$CKVC" manifest build $'a\xff=README.md' --out "$DIR/none.jsonl"
    fails 64 "byte 0 is not UTF-8" "$CKVC" manifest build README.md --source $'\xff' --out "$DIR/none.jsonl"
    fails 64 "byte 1 is not UTF-8" "$CKVC" merge $'r\xff'
    fails 78 "CKVC_LABEL*not UTF-8" env CKVC_LABEL=$'\xfc' "$CKVC" fit "$DIR/run" --out "$DIR/none.ckvt"
    fails 64 "byte 1 is not UTF-8" "$CKVC" verify $'x\xff.ckvt'
    for name in $'a\nb=README.md' "$(printf x%.0s {1..256})=README.md"; do
        fails 64 "1 to 255 bytes on one line" "$CKVC" manifest build "$name" --out "$DIR/none.jsonl"
    done
    fails 64 "--source*1 to 255 bytes" "$CKVC" manifest build README.md --source "" --out "$DIR/none.jsonl"
    fails 64 "--split-rest*1 to 255 bytes" "$CKVC" manifest build README.md --split-rest "" --out "$DIR/none.jsonl"
    [ ! -e "$DIR/none.jsonl" ]
}

@test "an option that is none, a value out of range, a choice that is none" {
    run -64 "$CKVC" fit --ouptut x
    run -64 "$CKVC" score --window 0
    fails 64 "head|gate|both" "$CKVC" calibrate --side sideways
}

@test "flag beats environment beats configuration beats default" {
    echo 'window = 20' >"$DIR/c.conf"
    [[ $("$CKVC" score --print-config) == *"window = 64  # default"* ]]
    [[ $("$CKVC" score --print-config --config "$DIR/c.conf") == *"window = 20  # config file"* ]]
    [[ $(CKVC_WINDOW=21 "$CKVC" score --print-config --config "$DIR/c.conf") == *"window = 21  # environment"* ]]
    [[ $(CKVC_WINDOW=21 "$CKVC" score --print-config --config "$DIR/c.conf" --window 22) == *"window = 22  # flag"* ]]
}

@test "the word behind an option that takes a value is that value, whatever it begins with" {
    local word
    for word in --help -h --print-config --json --config --seed --config=none --; do
        says 0 '"tokens":\[' "$CKVC" generate --model "$MODEL" --prompt "$word" --max-new 1 -q --json
    done
    fails 64 "--seed needs a value (N)" "$CKVC" generate --model "$MODEL" --prompt --help --seed
    fails 64 "got '--help'" "$CKVC" generate --seed --help --model "$MODEL"
    "$CKVC" generate -m --help --help | grep -q '^usage:'
    run -0 "$CKVC" generate --prompt x -q --help
}

@test "configuration errors exit 78 and name file and line" {
    printf '# fine\nwindow = 20\nwindw = 3\n' >"$DIR/c.conf"
    fails 78 "c.conf:3:*window" "$CKVC" score --config "$DIR/c.conf"
    echo 'window = many' >"$DIR/c.conf"
    run -78 "$CKVC" score --config "$DIR/c.conf"
    run -78 env CKVC_WINDOW=x "$CKVC" score
    run -66 "$CKVC" score --config "$DIR/none.conf"
    echo 'window = 20' >"$DIR/c.conf"
    run -64 "$CKVC" manifest --config "$DIR/c.conf" # of a verb without options
}

@test "the committed configurations are accepted by calibrate and fit" {
    for c in configs/*.conf; do
        "$CKVC" calibrate --config "$c" --print-config >/dev/null || { echo "$c"; return 1; }
        "$CKVC" fit --config "$c" --print-config >/dev/null || { echo "$c"; return 1; }
    done
    # any verb's option may stand in a file that serves several verbs
    echo 'rounds = 2' >"$DIR/c.conf"
    "$CKVC" fit --config "$DIR/c.conf" --print-config >/dev/null
    # default.conf is the built-in defaults; shared.conf says where its values are others
    for v in calibrate fit compile score; do
        "$CKVC" "$v" --print-config | sed 's/ *#.*//' | grep = >"$DIR/built-in"
        "$CKVC" "$v" --config configs/default.conf --print-config | sed 's/ *#.*//' | grep = | diff "$DIR/built-in" -
        "$CKVC" "$v" --config configs/shared.conf --print-config | sed 's/ *#.*//' | grep = >"$DIR/recommended"
        diff "$DIR/built-in" "$DIR/recommended" | sed -n 's/^> \([a-z-]*\) =.*/\1/p'
    done | sort -u >"$DIR/differ"
    grep '# Recommended' configs/shared.conf | sed 's/ =.*//' | sort -u | diff - "$DIR/differ"
    [ -s "$DIR/differ" ]
    # and names every knob of a calibration or a fit that has a default, but for what concerns a machine or one run
    for v in calibrate fit; do "$CKVC" "$v" --print-config | sed -n 's/^\([a-z-]*\) = .*/\1/p'; done | sort -u |
        grep -vxE 'backend|threads|memory|quiet|json|resume|dry-run|limit-time|force|no-prov|rollouts|check-rollouts|bootstrap|shrink|no-repeat|mode|classes|ranking|kept-floor|pass' |
        while read -r knob; do grep -q "^$knob = " configs/default.conf || { echo "$knob"; return 1; }; done
}

@test "paper.conf says of each value where it stands in the paper, or that it is ours and why" {
    [ "$(grep -c = configs/paper.conf)" -gt 20 ]
    run grep -nvE '^(#.*)?$|^[a-z-]+ = [^#]*[^# ] +# paper(, [^ ]{4}| silent: ours, because [^ ]+ ).*[^ ]$' configs/paper.conf
    echo "$output"
    [ -z "$output" ]
}

@test "malformed models: one line each that names the file, exit 65; the control loads" {
    awk 'BEGIN { printf "{\"id\":\"a\",\"tokens\":["; for (i = 0; i < 40; i++) printf "%s%d", i ? "," : "", i % 20 + 1; print "]}" }' >"$DIR/p.jsonl"
    for m in tests/golden/models/bad/*/; do
        want=65
        [[ $m != */control/ ]] || want=0
        says $want '' "$CKVC" perplexity --model "$m" --manifest "$DIR/p.jsonl" -q
        [ $want -eq 0 ] || { one_line && [[ $output == *config.json* || $output == *safetensors* ]]; } || { echo "$m: $output"; return 1; }
        says $want '' "$CKVC" verify "$m"
    done
}

@test "verify reads a model's tokenizer, where there is one" {
    cp -rL "$MODEL" "$DIR/m"
    chmod -R u+w "$DIR/m"
    "$CKVC" verify "$DIR/m"
    sed -i 's/"merges": *\[/"merges": [["no such","piece"],/' "$DIR/m/tokenizer.json"
    fails 65 "tokenizer.json: model.merges\[0\]" "$CKVC" verify "$DIR/m"
    run -65 "$CKVC" verify "$DIR/m" --json
    rm "$DIR/m/tokenizer.json"
    "$CKVC" verify "$DIR/m" # prompts may be given as tokens
}

@test "a tokenizer that gives ids without an embedding is refused" {
    cp -rL "$MODEL" "$DIR/m"
    chmod -R u+w "$DIR/m"
    edit() { # edit STATEMENT: of t, the tokenizer
        check 't = json.load(open(sys.argv[1])); exec(sys.argv[3]); json.dump(t, open(sys.argv[2], "w"))' \
            "$MODEL/tokenizer.json" "$DIR/m/tokenizer.json" "$1"
    }
    edit 't["model"]["vocab"]["another"] = 4096'
    for verb in "verify $DIR/m" "inspect $DIR/m" "perplexity --model $DIR/m --manifest $DIR/p.jsonl -q"; do
        fails 65 "m/tokenizer.json: model.vocab: id 4096, but the model has embeddings for ids 0 to 4095;" "$CKVC" $verb
    done
    # as Llama-2's "<pad>": of no harm where no text has it
    edit 't["added_tokens"].append(dict(t["added_tokens"][1], id=4096, content="<pad>"))'
    says 0 "go up to id 4096, the model's embeddings up to 4095;*: ok, model" "$CKVC" verify "$DIR/m"
    "$CKVC" perplexity --model "$DIR/m" --manifest "$DIR/p.jsonl" -q
    echo '{"id":"a","text":"some words and a <pad> in them"}' >"$DIR/pad.jsonl"
    fails 65 "is 4096, the model's vocabulary has ids 0 to 4095" "$CKVC" perplexity --model "$DIR/m" --manifest "$DIR/pad.jsonl" -q
}

@test "missing inputs exit 66, missing outputs folders 73, missing devices 69" {
    fails 66 '' "$CKVC" perplexity --model "$DIR/none" --manifest "$DIR/p.jsonl"
    run -66 "$CKVC" perplexity --model "$MODEL" --manifest "$DIR/none.jsonl"
    run -66 "$CKVC" verify "$DIR/none.ckvt"
    fails 73 '' "$CKVC" score --model "$MODEL" --manifest "$DIR/p.jsonl" --window 16 --continuation 8 --budget 8 --policy recent --out "$DIR/no/s.jsonl" -q
    fails 69 '' "$CKVC" perplexity --model "$MODEL" --manifest "$DIR/p.jsonl" --backend cuda
}

@test "too little memory for the matrix library: an error, not a process that never ends" {
    fails 71 '' timeout 30 bash -c "ulimit -d 150000; OPENBLAS_NUM_THREADS=1 exec '$CKVC' perplexity --model '$MODEL' --manifest '$DIR/p.jsonl' --threads 2 --backend openblas -q"
}

@test "backend openblas: the same numbers to rounding; a kernel slower than the CPU allows is warned of" {
    for b in cpu openblas; do
        "$CKVC" perplexity --model "$MODEL" --manifest "$DIR/p.jsonl" --backend "$b" -q >"$DIR/$b.txt"
    done
    paste -d ' ' <(grep -oE '[0-9]+\.[0-9]+' "$DIR/cpu.txt") <(grep -oE '[0-9]+\.[0-9]+' "$DIR/openblas.txt") |
        awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4 * $1) exit 1; n++ } END { exit n == 0 }'
    grep -qw avx2 /proc/cpuinfo || skip "this CPU has no AVX2 for a kernel to leave idle"
    run -0 bash -c "OPENBLAS_CORETYPE=Nehalem '$CKVC' perplexity --model '$MODEL' --manifest '$DIR/p.jsonl' --backend openblas 2>&1 >/dev/null"
    [[ $output == *"Nehalem kernel although this CPU has AVX"*"OPENBLAS_CORETYPE=Nehalem is set; unset it"* ]]
    run -0 bash -c "OPENBLAS_CORETYPE=Nehalem '$CKVC' perplexity --model '$MODEL' --manifest '$DIR/p.jsonl' 2>&1 >/dev/null"
    [[ $output != *kernel* ]] # its own kernels do not care
}

@test "manifest mistakes: file, line, what to do" {
    echo '{"id":"x","text":"a","tokens":[1]}' >>"$DIR/p.jsonl"
    fails 65 p.jsonl:3: "$CKVC" perplexity --model "$MODEL" --manifest "$DIR/p.jsonl"
    sed -i '$d' "$DIR/p.jsonl"
    fails 65 "p.jsonl:1:*--skip-short" "$CKVC" calibrate --model "$MODEL" --manifest "$DIR/p.jsonl" --window 64 --continuation 64 --budget 8 --out "$DIR/never"
    run -65 "$CKVC" score --model "$MODEL" --manifest "$DIR/p.jsonl" --window 64 --continuation 64 --budget 8 --policy recent --skip-short
    echo '{"id":"x","tokens":[1,2,99999,4,5,6,7,8,9,10,11,12]}' >"$DIR/p.jsonl"
    fails 65 99999 "$CKVC" score --model "$MODEL" --manifest "$DIR/p.jsonl" --window 4 --continuation 4 --budget 8 --policy recent
}

@test "tokenize and back" {
    printf 'The quick brown fox: 12345!\n' >"$DIR/t"
    "$CKVC" tokenize --model "$MODEL" <"$DIR/t" >"$DIR/ids"
    "$CKVC" tokenize --model "$MODEL" --decode <"$DIR/ids" >"$DIR/back"
    grep -q 'The quick brown fox: 12345!' "$DIR/back"
}

@test "perplexity --json has the losses and logits that are asked for" {
    "$CKVC" perplexity --model "$MODEL" --manifest "$DIR/p.jsonl" --json --tokens --logits 0,5 -q >"$DIR/o.json"
    check '
row = json.loads(open(sys.argv[1]).readline())
assert len(row["nll"]) == row["n"] - 1
assert abs(sum(row["nll"]) / len(row["nll"]) - row["mean_nll"]) < 1e-9
assert abs(math.exp(row["mean_nll"]) - row["ppl"]) < 1e-6 * row["ppl"]
assert sorted(row["logits"]) == ["0", "5"] and len(row["logits"]["0"]) == 4096' "$DIR/o.json"
}

@test "the sanitised build takes the same way through" {
    [ -x "${CKVC_ASAN:-}" ] || skip "no sanitised build at hand"
    export CKVC=$CKVC_ASAN
    prompts 4 >"$DIR/prompts.jsonl"
    calibrate "$DIR/run" --variants 4
    "$CKVC" fit "$DIR/run" --out "$DIR/a.ckvt" -q
    "$CKVC" transfer "$DIR/a.ckvt" --to-shape 8,3 --out "$DIR/t.ckvt"
    "$CKVC" score "${SMALL[@]:0:6}" --manifest "$DIR/prompts.jsonl" --limit 2 --table "$DIR/a.ckvt" --policy identity,matched --out "$DIR/s.jsonl" -q
    "$CKVC" report "$DIR/a.ckvt" "$DIR/run" --scores "$DIR/s.jsonl" --out "$DIR/report"
    "$CKVC" verify "$DIR/run" "$DIR/a.ckvt" "$DIR/t.ckvt"
    "$CKVC" inspect "$DIR/a.ckvt" --json --cells >/dev/null
}

@test "a folder of something else is told what is wanted" {
    mkdir -p "$DIR/texts"
    echo text >"$DIR/texts/a.txt"
    fails 66 '' "$CKVC" perplexity --model "$DIR/texts" --manifest "$DIR/p.jsonl"
    [[ $output == *"$DIR/texts: holds no config.json; want a Hugging Face model folder or a GGUF file" ]]
    for verb in status fit; do
        fails 66 '' "$CKVC" $verb "$DIR/texts" $([ $verb = fit ] && echo --out "$DIR/t.ckvt")
        [[ $output == *"$DIR/texts: holds no run.json; want the --out folder of scan, calibrate or compile" ]]
    done
}

@test "a model with two rotary bases: its whole cache is scored and decoded, what cuts it is refused by one line" {
    local g=tests/golden/models/gemma3 set=(--manifest "$DIR/g.jsonl" --window 16 -q)
    awk 'BEGIN { printf "{\"id\":\"a\",\"tokens\":["; for (i = 0; i < 60; i++) printf "%s%d", i ? "," : "", i * i % 79; printf "],\"continuation_tokens\":[1,2,3,4,5,6,7,8]}\n" }' >"$DIR/g.jsonl"
    "$CKVC" score --model $g "${set[@]}" --policy full --out "$DIR/s.jsonl"
    "$CKVC" generate --model $g --manifest "$DIR/g.jsonl" --max-new 8 --json >"$DIR/t.json"
    for verb in "score --policy full,snapkv --out $DIR/s2.jsonl" "generate --policy snapkv" "compile --out $DIR/r" \
        "calibrate --side demand --out $DIR/r2"; do
        # shellcheck disable=SC2086 # words of a command
        fails 65 "a gemma3_text model*perplexity" "$CKVC" $verb --model $g "${set[@]}" --budget 0.5
    done
    [ ! -e "$DIR/s2.jsonl" ]
}
