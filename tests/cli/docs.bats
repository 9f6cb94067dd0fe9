# Every command in README.md and docs/ runs. A block ```sh is run as it stands, the blocks of a page one after the other in one folder, where DIR is a
# small model and my-texts a folder of text; README's come first, and every other page goes on from what they made. What needs a machine, a model
# or an hour of one's own stands in ```sh by hand: WHY. A command anywhere else fails the last test.
RANDOM_MODEL=1
load helper

setup_file() {
    export PAGES="$BATS_FILE_TMPDIR/pages"
    mkdir -p "$PAGES/bin" "$PAGES/README.md/my-texts"
    ln -s "$(realpath "$CKVC")" "$PAGES/bin/ckvc"
    ln -s "$(realpath "$MODEL")" "$PAGES/README.md/DIR"
    ln -s "$PWD/configs" "$PAGES/README.md"
    cp docs/{method,paper,formats}.md "$PAGES/README.md/my-texts"
}

# blocks PAGE: its ```sh blocks
blocks() { awk '/^```/ { on = !on && $0 == "```sh"; next } on' "$1"; }

# run_page PAGE: in a folder of its own below $PAGES
run_page() {
    local page=$PWD/$1 folder=$PAGES/$1
    [ -d "$folder" ] || cp -a "$PAGES/README.md" "$folder"
    (cd "$folder" && blocks "$page" | PATH="$PAGES/bin:$PATH" CKVC_THREADS=1 bash -ex) >"$folder.log" 2>&1 || { tail -n 20 "$folder.log"; return 1; }
}

@test "README's three commands, from the texts that come along and from three files of text to a verdict" {
    run_page README.md
    [ -s "$PAGES/README.md/run-report/report.html" ]
    [ "$(blocks README.md | grep -c '^ckvc ')" -eq 3 ]
    grep -q '"verdict"' "$PAGES/README.md/run-report/report.json"
}

@test "the same from one file" {
    mkdir "$PAGES/one"
    cp -a "$PAGES/README.md"/{DIR,my-texts} "$PAGES/one"
    rm "$PAGES"/one/my-texts/[fp]*
    (cd "$PAGES/one" && blocks "$OLDPWD/README.md" | PATH="$PAGES/bin:$PATH" CKVC_THREADS=1 bash -ex) >"$PAGES/one.log" 2>&1 || { tail -n 20 "$PAGES/one.log"; return 1; }
}

@test "the commands of every page of docs" {
    mkdir -p "$PAGES/docs"
    for page in docs/*.md; do
        [ -z "$(blocks "$page")" ] || { echo "== $page"; run_page "$page"; }
    done
    for pass in heads=01 paper=02; do # paper.md says so
        [ "$(content_id "$PAGES/docs/paper.md/${pass%=*}.ckvt")" = "$(content_id "$PAGES/docs/paper.md/loop/tables/pass-${pass#*=}.ckvt")" ]
    done
}

@test "no command of README and docs stands outside a block that is run or marked" {
    run awk '
        /^```/ { if (open) { open = ""; next } open = $0
                 if ($0 ~ /^```sh/ && $0 !~ /^```sh( by hand: .+)?$/) print FILENAME ": " FNR ": " $0
                 next }
        open !~ /^```sh/ && /^ *(\$ )?([A-Z_]+=[^ ]* )*(ckvc|make|python3?|bash|(build|scripts)\/[^ ]*) [^ ]/ && (open || /^    /) { print FILENAME ": " FNR ": " $0 }
    ' README.md docs/*.md
    [ -z "$output" ] || { echo "$output"; return 1; }
}

@test "docs/options.md has the options that the program prints" {
    scripts/cli_options.py "$CKVC" "$PAGES/options.md"
    diff docs/options.md "$PAGES/options.md" || { echo "run: scripts/cli_options.py build/release/ckvc docs/options.md"; return 1; }
}

@test "--out and --force are -o and -f in every verb" {
    ! grep -E '^- `--(out|force)( |`)' docs/options.md
}

@test "links of README and docs lead to files, and README is short: 125 lines" {
    for page in README.md docs/*.md; do
        for link in $(grep -oE '\]\([^)# ]+' "$page" | cut -c 3- | grep -v '://'); do
            [ -e "$(dirname "$page")/$link" ] || { echo "$page: $link"; return 1; }
        done
    done
    [ "$(wc -l <README.md)" -le 125 ]
}
