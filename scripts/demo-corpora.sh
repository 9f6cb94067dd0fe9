#!/usr/bin/env bash
# Builds the two demo manifests from Debian's own text packages: scripts/demo-corpora.sh CKVC OUTDIR
#
# OUTDIR/NAME-all.jsonl are all prompts; NAME.jsonl those that share nothing with the other corpus or with held-out prompts of their own;
# NAME-leaks.json the record that this was checked, for --leak-check.
#
# The packages are fetched with apt-get download and unpacked with dpkg-deb -x below build/; nothing is installed and no root is
# needed. Packages that are there already are not fetched again, so that a second run works offline. What is taken from them and
# under which licences: data-manifests/README.md.
set -euo pipefail

ckvc=${1:?usage: demo-corpora.sh CKVC OUTDIR}
out=${2:?usage: demo-corpora.sh CKVC OUTDIR}
root=$(cd "$(dirname "$0")/.." && pwd)

# ---- sizes ----
MODEL=${DEMO_MODEL:-$root/models/ckvc-tiny-8l}
read -ra CORPORA <<<"${DEMO_CORPORA:-technical narrative}" # technical alone: narrative documents are chapters, too short for 2,000 tokens
PROMPTS=${DEMO_PROMPTS:-118}          # of each corpus, retrieval included
RETRIEVAL=${DEMO_RETRIEVAL:-0.25}     # share that asks for facts hidden in the text
MIN_LENGTH=${DEMO_MIN_LENGTH:-320}    # tokens of a prompt, BOS included
MAX_LENGTH=${DEMO_MAX_LENGTH:-448}
CONTINUATION=${DEMO_CONTINUATION:-64} # tokens at least
HELDOUT=${DEMO_HELDOUT:-0.25}         # share of the documents whose prompts judge tables
SELECT=${DEMO_SELECT:-0.14}           # and of those by which compile chooses what a table recommends
SEED=${DEMO_SEED:-1}

TECHNICAL=(postfix-doc tcl8.6-doc guile-3.0-doc octave-doc debian-reference-en)
NARRATIVE=(bible-kjv-text bible-kjv)
# Books of the King James Bible that tell a story (no laws, lists, psalms, letters).
BOOKS="Genesis Exodus Joshua Judges Ruth 1Samuel 2Samuel 1Kings 2Kings Ezra Nehemiah Esther Job Jonah Daniel Matthew Mark Luke John Acts"

debs=$root/build/debs
unpacked=$root/build/unpacked
say() { echo "demo-corpora: $*" >&2; }

have() { compgen -G "$debs/$1_*.deb" >/dev/null; }

fetch() { # PACKAGE...: into $debs, with the machine's package lists or, when it has none, lists of our own
    local state=$root/build/apt options=()
    command -v apt-get >/dev/null || { say "apt-get is missing: put the packages $* as .deb files into $debs"; exit 69; }
    if [[ $(apt-cache policy "$1" 2>/dev/null) != *"Candidate: "[0-9]* ]]; then
        mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
        options=(-o "Dir::State::lists=$state/lists" -o "Dir::Cache=$state/cache")
        say "fetching package lists into $state"
        apt-get "${options[@]}" -q -q update >"$state/log" 2>&1 ||
            { say "apt-get update failed: $(grep -m1 -E '^[EW]:' "$state/log" || echo no reason given); or put the packages as .deb files into $debs"; exit 69; }
    fi
    say "fetching $*"
    (cd "$debs" && apt-get "${options[@]}" -q -q -o APT::Sandbox::User=root download "$@" >"$debs/log" 2>&1) ||
        { say "apt-get download failed: $(grep -m1 '^E:' "$debs/log" || echo no reason given); or put the packages as .deb files into $debs"; exit 69; }
}

need() { # PACKAGE...: fetched when missing, then unpacked
    local missing=() p deb
    for p in "$@"; do have "$p" || missing+=("$p"); done
    [ ${#missing[@]} -eq 0 ] || fetch "${missing[@]}"
    for p in "$@"; do
        deb=$(compgen -G "$debs/${p}_*.deb" | sort | tail -n 1)
        say "$(basename "$deb") sha256 $(sha256sum "$deb" | cut -c 1-64)"
        if [ ! -e "$unpacked/$p/.done-$(basename "$deb")" ]; then
            rm -rf "${unpacked:?}/$p"
            mkdir -p "$unpacked/$p"
            dpkg-deb -x "$deb" "$unpacked/$p"
            touch "$unpacked/$p/.done-$(basename "$deb")"
        fi
    done
}

# The Bible's text is compressed in its own way: the package's own reader prints it, one verse a line. A folder of chapters.
bible() {
    local data=$unpacked/bible-kjv-text/usr/lib/ reader=$unpacked/bible-kjv/usr/bin/bible folder=$unpacked/bible book libs=
    [ ! -e "$folder/.done" ] || return 0
    if ! "$reader" -f -p "$data" 'Genesis 1:1' </dev/null >/dev/null 2>&1; then # a slim system has no readline
        need libreadline8 libtinfo6
        libs=$(find "$unpacked/libreadline8" "$unpacked/libtinfo6" -name '*.so.*' -printf '%h\n' | sort -u | paste -sd:)
    fi
    rm -rf "$folder"
    mkdir -p "$folder"
    for book in $BOOKS; do
        LD_LIBRARY_PATH=$libs "$reader" -f -p "$data" "$book 1:1-$book 150:200" </dev/null
    done | awk -v folder="$folder" '
        match($0, /^[0-9]?[A-Za-z]+[0-9]+:/) {       # "Ge1:3 And God said ...": a file per chapter, verses joined to prose
            chapter = substr($0, 1, RLENGTH - 1)
            if (chapter != last) { if (last != "") close(file); file = folder "/" chapter ".txt"; last = chapter; column = 0 }
            n = split(substr($0, index($0, " ") + 1), word, " ")
            for (i = 1; i <= n; i++) {               # lines of up to 72 characters, as books have
                if (column && column + 1 + length(word[i]) > 72) { printf "\n" > file; column = 0 }
                printf "%s%s", (column ? " " : ""), word[i] > file
                column += length(word[i]) + (column > 0)
            }
        }'
    [ "$(find "$folder" -name '*.txt' | wc -l)" -gt 100 ] || { say "the Bible reader of bible-kjv printed no text"; exit 69; }
    touch "$folder/.done"
}

manifest() { # NAME SOURCE=PATH...
    local name=$1
    shift
    "$ckvc" manifest build --force --model "$MODEL" --prompts "$PROMPTS" --retrieval "$RETRIEVAL" \
        --retrieval-source "$name-retrieval" --min-length "$MIN_LENGTH" --max-length "$MAX_LENGTH" \
        --continuation "$CONTINUATION" --split-share "heldout=$HELDOUT,select=$SELECT" --seed "$SEED" --out "$out/$name-all.jsonl" "$@"
}

mkdir -p "$debs" "$unpacked" "$out"
need "${TECHNICAL[@]}"
manifest technical \
    postfix="$unpacked/postfix-doc/usr/share/doc/postfix/html" \
    tcl="$unpacked/tcl8.6-doc/usr/share/man" \
    guile="$unpacked/guile-3.0-doc/usr/share/info" \
    octave="$unpacked/octave-doc/usr/share/info" \
    debian-reference="$unpacked/debian-reference-en/usr/share/debian-reference"
if [[ ${CORPORA[*]} == *narrative* ]]; then
    need "${NARRATIVE[@]}"
    bible
    manifest narrative bible-kjv="$unpacked/bible"
fi

all=$(printf '%s-all.jsonl,' "${CORPORA[@]/#/$out/}") left=$(printf '%s.jsonl,' "${CORPORA[@]/#/$out/}")
for name in "${CORPORA[@]}"; do # exit 1: something was shared, and is left out
    say "leaving out prompts that share text with the other corpus or with held-out $name ones"
    "$ckvc" manifest check --force "$out/$name-all.jsonl" --against "${all%,}" \
        --clean "$out/$name.jsonl" || [ $? -eq 1 ]
done
for name in "${CORPORA[@]}"; do
    "$ckvc" manifest check --force "$out/$name.jsonl" --against "${left%,}" \
        --out "$out/$name-leaks.json" >/dev/null
done
