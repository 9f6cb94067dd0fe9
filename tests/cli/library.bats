# The policy library as an engine meets it: what it exports, from C and C++, installed; a real prefill compressed by it.
load helper

setup_file() {
    export DIR="$BATS_FILE_TMPDIR" ROOT="$BATS_FILE_TMPDIR/root" FOLDER
    FOLDER=$(dirname "$CKVC")
    build install
    prompts 6 >"$DIR/prompts.jsonl"
    calibrate "$DIR/run"
    "$CKVC" fit "$DIR/run" --out "$DIR/paper.ckvt" 2>/dev/null
    calibrate "$DIR/demand" --side demand
    "$CKVC" fit "$DIR/demand" --out "$DIR/heads.ckvt" 2>/dev/null
}

# build TARGET: of the program under test, as it is
build() {
    make -s -o all -o "build/$(basename "$FOLDER")/ckvc" VARIANT="$(basename "$FOLDER")" DESTDIR="$ROOT" PREFIX=/usr "$1"
}

@test "the shared library exports what the header declares and nothing else, and needs libc and libm alone" {
    [[ $FOLDER == */release ]] || skip "of the release build"
    library="$ROOT/usr/lib/libckvc_policy.so"
    exported=$(nm -D --defined-only "$library" | awk '{print $3}' | sort)
    [ "$exported" = "$(grep -oE '\bckvc_[a-z0-9_]+\(' lib/policy/ckvc_policy.h | tr -d '(' | sort -u)" ]
    [ "$(readlink "$library")" = libckvc_policy.so.1.0.0 ]
    [ "$(readelf -d "$library" | sed -nE 's/.*\((NEEDED|SONAME)\).*\[(.*)\]/\2/p' | sort | paste -sd ' ')" = "libc.so.6 libckvc_policy.so.1 libm.so.6" ]
}

@test "the installed example builds as C99 and as C++, against either library, and keeps the same" {
    [[ $FOLDER == */release ]] || skip "of the release build"
    example="$ROOT/usr/share/ckvc/keep_set.c"
    flags=$(PKG_CONFIG_SYSROOT_DIR=$ROOT PKG_CONFIG_PATH=$ROOT/usr/lib/pkgconfig pkg-config --define-variable=libdir="$ROOT/usr/lib" --cflags --libs ckvc_policy)
    strict="-Wall -Wextra -Wpedantic -Werror -I$ROOT/usr/include"
    cc -std=c99 $strict "$example" -o "$DIR/shared" -L"$ROOT/usr/lib" -lckvc_policy
    cc -std=c99 $strict "$example" -o "$DIR/static" "$ROOT/usr/lib/libckvc_policy.a" -lm
    [[ $flags == *-lckvc_policy* ]]
    for table in shares learned learned2 one-layer; do # of heads of two numbers, where the table depends on it
        run -0 "$DIR/static" "tests/golden/table/$table.ckvt" 2
        [[ $output == "layer 0 head 0 keeps "* ]]
        [ "$(LD_LIBRARY_PATH=$ROOT/usr/lib "$DIR/shared" "tests/golden/table/$table.ckvt" 2)" = "$output" ]
    done
    run -1 "$DIR/static" README.md
    [[ $output == "usage: "* ]]
    run -1 "$DIR/static" README.md 8
    [[ $output == "README.md: byte 0: not a ckvt table"* ]]
    command -v g++ || skip "g++ is not installed"
    g++ $strict -Wno-missing-field-initializers -x c++ "$example" -o "$DIR/plus" -L"$ROOT/usr/lib" -lckvc_policy
    [ "$(LD_LIBRARY_PATH=$ROOT/usr/lib "$DIR/plus" tests/golden/table/learned.ckvt 2)" = "$("$DIR/static" tests/golden/table/learned.ckvt 2)" ]
}

@test "kept_generate: a real prefill, what it keeps, and text from there" {
    build "build/$(basename "$FOLDER")/example/kept_generate"
    example="$FOLDER/example/kept_generate"
    text="the cache of a long prompt holds keys and values of every token, and most of them are never looked at again; a policy says which ones stay"
    for table in paper heads; do
        run -0 "$example" "$MODEL" "$DIR/$table.ckvt" 4000 "$text" 8
        if [ "$table" = heads ]; then # all is kept, and nothing changes
            [ "$(sed -n 's/^full: //p' <<<"$output")" = "$(sed -n 's/^kept: //p' <<<"$output")" ]
        fi
        entries=$(sed -nE 's/^full: ([0-9]+) .*/\1/p' <<<"$output")
        run -0 "$example" "$MODEL" "$DIR/$table.ckvt" 0.5 "$text" 8
        kept=$(sed -nE 's/^kept: ([0-9]+) .*/\1/p' <<<"$output")
        [ "$kept" -gt 0 ]; [ $((2 * kept)) -le "$entries" ]
    done
    run -1 "$example" "$MODEL" "$DIR/heads.ckvt" 2 "$text" 8
    [[ $output == "kept_generate: the table: a budget of 2 tokens is below what every head must keep; the least is 9" ]]
    run "$example" models/ckvc-tiny-8l "$DIR/heads.ckvt" 0.5 "$text" 8
    [[ $output == "kept_generate: the table: is for 4 layers x 3 KV heads, the model has 8 x "* ]]
    for table in paper heads; do # a prompt no longer than the window is kept whole, below the floor, too
        says 0 '' "$example" "$MODEL" "$DIR/$table.ckvt" 2 "t" 8
        [ "$(sed -n 's/^full: //p' <<<"$output")" = "$(sed -n 's/^kept: //p' <<<"$output")" ]
    done
}
