# Prompts from text in any script: built, checked against themselves, run through the embedded model; what is left out is named.
load helper
setup() { DIR=$BATS_TEST_TMPDIR; }

# FOLDER SEPARATOR LETTER...: three files of made-up sentences, each file one line
texts() {
    mkdir "$DIR/$1"
    python3 - "$DIR/$1" "$2" "${@:3}" <<'EOF'
import random, sys
folder, space, comma, stop, letters = sys.argv[1:6]
rng = random.Random(5)
for i in range(3):
    words = lambda n: space.join("".join(rng.choice(letters) for _ in range(rng.randint(1, 5))) for _ in range(n))
    with open(f"{folder}/{i}.txt", "w", encoding="utf-8") as f:
        for _ in range(400):
            f.write(words(rng.randint(3, 9)) + comma + words(rng.randint(3, 9)) + stop)
EOF
}

@test "Chinese, Japanese and Arabic text becomes prompts that the model reads" {
    texts zh "" "，" "。" 天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏
    texts ja "" "、" "。" いろはにほへとちりぬるをわかよたれそつねならむ山川
    texts ar " " "، " ". " ابتثجحخدذرزسشصضطظعغفقكلمنهوي
    "$CKVC" manifest build zh="$DIR/zh" ja="$DIR/ja" ar="$DIR/ar" --model "$MODEL" --prompts 30 --retrieval 0.2 --min-length 200 \
        --max-length 300 --continuation 32 --split-share heldout=0.4 --out "$DIR/p.jsonl" 2>"$DIR/said"
    grep -q "30 prompts (6 retrieval)" "$DIR/said"
    check '
entries = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
text = [e for e in entries if e["source"] != "retrieval"]
assert {e["source"] for e in text} == {"zh", "ja", "ar"}
assert len({e["source"] for e in text}) == 3 and all(e["text"] and e["continuation"] for e in entries)' "$DIR/p.jsonl"
    "$CKVC" manifest check "$DIR/p.jsonl" --model "$MODEL" --min-length 200 --against "$DIR/p.jsonl"
    "$CKVC" perplexity --model "$MODEL" --manifest "$DIR/p.jsonl" --limit 3 >/dev/null
    # the same text again is found, spaced otherwise
    check '
for line in open(sys.argv[1], encoding="utf-8"):
    e = json.loads(line)
    if e["source"] == "zh" and e["split"] == "fit":
        print(json.dumps({"context": " ".join(e["text"].replace("。", "！"))}))
        break' "$DIR/p.jsonl" >"$DIR/e.jsonl"
    says 1 "1 prompts touched" "$CKVC" manifest check "$DIR/p.jsonl" --against "$DIR/e.jsonl"
}

@test "files that make no prompt are counted by reason and named" {
    texts zh "" "，" "。" 天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏
    echo short >"$DIR/zh/tiny.txt"
    for i in $(seq 400); do printf '\xef\xbf\xbd\xee\x80\x80'; done >"$DIR/zh/marks.txt" # U+FFFD, private use
    head -c 5000 /dev/zero >"$DIR/zh/zeros.dat"
    says 0 "left out: 1 short documents (tiny.txt), 1 files of unreadable characters (marks.txt), 1 binary files (zeros.dat), " "$CKVC" manifest build "$DIR/zh" --prompts 4 --out "$DIR/p.jsonl"
    "$CKVC" manifest build "$DIR/zh" --prompts 4 --out "$DIR/p.jsonl" --force --json | check '
assert json.load(sys.stdin)["left_out"] == {"short": 1, "unreadable": 1, "binary": 1, "markup": 0, "no_prose": 0, "other_lengths": 0, "repeated": 0, "repeated_paragraphs": 0}'
}

@test "code, data and Markdown stay as they stand, by their ending; with --keep all every text does" {
    local kept="$DIR/kept" i
    mkdir "$kept"
    for i in $(seq 60); do printf '\tx_%d[%d] |= {“%d”};  /* … */\n\n\n' "$i" $((i * 7)) $((i * i)); done | tee "$kept/a.C" "$kept/b.json.gz" >"$kept/c.txt"
    for i in $(seq 60); do printf '| %d | `%d` |\n' $((i * 3)) $((i + 1000)); done >"$kept/d.md"
    cp "$kept/d.md" "$kept/again.md" # the same text
    gzip -c "$kept/b.json.gz" >"$kept/b.gz" && mv "$kept/b.gz" "$kept/b.json.gz" && sed -i 's/x_1\[/x_0[/' "$kept/a.C"
    built() { "$CKVC" manifest build "$kept" --min-length 200 --max-length 300 --continuation 60 --out "$DIR/kept.jsonl" --force "$@"; }
    run -0 built
    [[ $output == *"kept as they stand: files of code (1), data (1), Markdown (1)"$'\n'"left out: 1 short documents (d.md), "* ]]
    built --json | check 'assert json.load(sys.stdin)["kept_as_is"] == {"text": 0, "code": 1, "data": 1, "Markdown": 1}'
    check '
import gzip
texts = [open(sys.argv[1] + "/a.C").read(), gzip.open(sys.argv[1] + "/b.json.gz", "rt").read(), open(sys.argv[1] + "/again.md").read()]
of = [[row["text"] + row["continuation"] in text for text in texts] for row in rows_of(sys.argv[2])]
assert all(any(row) for row in of) and all(any(text) for text in zip(*of)), of' "$kept" "$DIR/kept.jsonl"
    fails 65 "spans were no prose, which --keep all keeps" built --min-length 900 --max-length 1000 --prompts 900
    rm "$kept"/[abd]*
    fails 65 "text for only 0 of 1 prompts" built --prompts 1
    run -0 built --prompts 1 --keep all
    [[ $output == *"kept as they stand: files of text (1)"$'\n'* ]]
    fails 64 "kinds|all" built --keep none
}

@test "text that is no UTF-8 is an error with file and byte; --encoding reads it" {
    no() { fails 65 "$1" "$CKVC" manifest build "$DIR/zh" --prompts 4 --out "$DIR/p.jsonl" "${@:2}" && [ ! -e "$DIR/p.jsonl" ]; } # WORDS OPTIONS...
    built() { # FILE ENCODING: the manifest that its text has as UTF-8
        "$CKVC" manifest build "$1" --encoding "$2" --prompts 4 --source x --out "$DIR/p.jsonl" --force
        "$CKVC" manifest build "$DIR/0.txt" --prompts 4 --source x --out "$DIR/q.jsonl" --force
        cmp <(grep -o '"text":.*' "$DIR/p.jsonl" | sort) <(grep -o '"text":.*' "$DIR/q.jsonl" | sort)
        rm "$DIR/p.jsonl"
    }
    texts zh "" "，" "。" 天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏
    cp "$DIR/zh/0.txt" "$DIR"
    iconv -f utf-8 -t gb18030 "$DIR/0.txt" >"$DIR/zh/0.txt"
    no "zh/0.txt: byte 0 "
    built "$DIR/zh/0.txt" gb18030
    iconv -f utf-8 -t utf-16 "$DIR/0.txt" >"$DIR/zh/0.txt"
    no "zh/0.txt: byte 0 "
    built "$DIR/zh/0.txt" utf-16
    # a byte of many; in a .gz file it is that of the text
    (head -c 30000 "$DIR/0.txt"; printf '\xe9'; tail -c +30001 "$DIR/0.txt") >"$DIR/zh/0.txt"
    no "zh/0.txt: byte 30000 "
    gzip "$DIR/zh/0.txt"
    no "zh/0.txt.gz: byte 30000 "
    no "--encoding latin1"
    no "neither UTF-8 nor ascii" --encoding ascii
    run -64 "$CKVC" manifest build "$DIR/zh" --encoding latin-one --out "$DIR/p.jsonl"
    # each by its own: what is UTF-8 stays
    rm "$DIR"/zh/0.txt.gz
    python3 -c 'import random; print(" ".join(random.choice(["\xe9t\xe9", "for\xeat", "no\xebl", "gar\xe7on"]) for _ in range(20000)) + ".")' | iconv -f utf-8 -t latin1 >"$DIR/zh/fr.txt"
    no "zh/fr.txt: byte "
    "$CKVC" manifest build "$DIR/zh" --encoding latin1 --out "$DIR/p.jsonl"
    grep -q '天' "$DIR/p.jsonl"
    grep -q 'forêt' "$DIR/p.jsonl"
    ! grep -q "$(printf '\xef\xbf\xbd')" "$DIR/p.jsonl"
}

@test "a PATH without a text file is an error that names it and what is read" {
    mkdir "$DIR/none"
    printf x >"$DIR/none/a.png"
    fails 65 "$DIR/none: holds no text file; read are plain text and reStructuredText," "$CKVC" manifest build "$DIR/none" --out "$DIR/p.jsonl"
}
