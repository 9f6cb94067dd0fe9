# ckvc fit from the outside: bare shards that another program wrote, refusals with their exit codes, equal inputs giving equal bytes.
load helper

WRITE=tests/python/write_bare_shard.py

setup_file() {
    needs_h5py
    export PY
    "$PY" $WRITE "$DIR/all.h5"
    "$PY" $WRITE "$DIR/a.h5" --prompts 25
    "$PY" $WRITE "$DIR/b.h5" --prompts 35 --first 25
    "$PY" $WRITE "$DIR/other.h5" --prompts 4 --first 100 --continuation 48
}

@test "a bare shard that another program wrote by shard.md alone is fitted: the world's best actions come out" {
    run -0 "$CKVC" fit "$DIR/all.h5" --out "$DIR/all.ckvt" --force
    [[ "$output" == *"60 prompts; 12 of 12 states supported"* ]]
    [[ "$output" == *"24 of 24 states supported"* ]]
    [[ "$output" == *"action counts are equal"* ]]
    "$CKVC" verify "$DIR/all.ckvt"
    "$PY" $WRITE --check "$DIR/all.ckvt"
}

@test "cuts and order of shards, and a second run, give the same bytes" {
    "$CKVC" fit -q --no-prov "$DIR/all.h5" --out "$DIR/1.ckvt"
    "$CKVC" fit -q --no-prov "$DIR/all.h5" --out "$DIR/2.ckvt"
    "$CKVC" fit -q --no-prov "$DIR/b.h5" "$DIR/a.h5" --out "$DIR/3.ckvt"
    cmp "$DIR/1.ckvt" "$DIR/2.ckvt"
    cmp "$DIR/1.ckvt" "$DIR/3.ckvt"
}

@test "provenance changes the file, not its content id" {
    one=$("$CKVC" fit -q --json --no-prov "$DIR/a.h5" --out "$DIR/p1.ckvt")
    two=$("$CKVC" fit -q --json "$DIR/a.h5" --out "$DIR/p2.ckvt")
    [ "$(grep -o '"content_id":"[0-9a-f]*"' <<<"$one")" = "$(grep -o '"content_id":"[0-9a-f]*"' <<<"$two")" ]
    run -1 cmp -s "$DIR/p1.ckvt" "$DIR/p2.ckvt"
}

@test "--json prints one object with the diagnostics" {
    "$CKVC" fit -q --json --bootstrap 20 "$DIR/a.h5" --out "$DIR/j.ckvt" | check '
o = json.load(sys.stdin)
assert o["head"]["supported"] == 12 and o["gate"]["records"] == 25 * 3 * 2 * 21, o
assert o["head"]["alpha_decided"] == 0 and o["replicates"] == 20, o'
}

@test "uniform draws: counts are not equal, and the fit says what they decided" {
    "$PY" $WRITE "$DIR/u.h5" --uniform
    run -0 "$CKVC" fit "$DIR/u.h5" --out "$DIR/u.ckvt"
    [[ "$output" == *"rank correlation of choice and count"* ]]
}

@test "AdamW says how far it stopped from the minimum" {
    run -0 "$CKVC" fit --solver adamw "$DIR/a.h5" --out "$DIR/w.ckvt"
    [[ "$output" == *"from the exact solution"* ]]
    "$CKVC" verify "$DIR/w.ckvt"
}

@test "shards of two plans that do not belong together: 65, the field and both values" {
    fails 65 "was made with --continuation 48, *a.h5 has 32" "$CKVC" fit "$DIR/a.h5" "$DIR/other.h5" --out "$DIR/x.ckvt"
    [ ! -e "$DIR/x.ckvt" ]
}

@test "what is no shard, or was cut off: one line, 65, no table" {
    head -c 3000 "$DIR/a.h5" >"$DIR/torn.h5"
    echo "not HDF5" >"$DIR/text.h5"
    for kind in torn text; do
        fails 65 $kind.h5 "$CKVC" fit "$DIR/$kind.h5" --out "$DIR/x.ckvt"
        [ ! -e "$DIR/x.ckvt" ]
    done
}

@test "usage: what is missing or makes no sense is said" {
    run -64 "$CKVC" fit --out "$DIR/x.ckvt"
    fails 64 --out "$CKVC" fit "$DIR/a.h5"
    run -64 "$CKVC" fit "$DIR/a.h5" "$DIR/a.h5" --out "$DIR/x.ckvt"
    run -64 "$CKVC" fit --shrink "$DIR/a.h5" --out "$DIR/x.ckvt"
    run -64 "$CKVC" fit --split heldout "$DIR/a.h5" --out "$DIR/x.ckvt"
    run -64 "$CKVC" fit --solver adam "$DIR/a.h5" --out "$DIR/x.ckvt"
    run -65 "$CKVC" fit --split nobody "$DIR/a.h5" --out "$DIR/x.ckvt"
    run -66 "$CKVC" fit "$DIR/not-there.h5" --out "$DIR/x.ckvt"
    fails 71 "at most * replicates" "$CKVC" fit --bootstrap 100000 --memory 64M "$DIR/a.h5" --out "$DIR/x.ckvt"
}

@test "a table that exists is kept unless --force says otherwise" {
    "$CKVC" fit -q "$DIR/a.h5" --out "$DIR/kept.ckvt"
    before=$(sha256sum <"$DIR/kept.ckvt")
    run -73 "$CKVC" fit "$DIR/b.h5" --out "$DIR/kept.ckvt"
    [ "$before" = "$(sha256sum <"$DIR/kept.ckvt")" ]
    run -0 "$CKVC" fit -q --force "$DIR/b.h5" --out "$DIR/kept.ckvt"
}

@test "an incoming table of other edges or budgets is refused; a fitting one gives the unsupported cells" {
    "$CKVC" fit -q "$DIR/a.h5" --out "$DIR/in.ckvt"
    run -0 "$CKVC" fit -q --tables "$DIR/in.ckvt" "$DIR/b.h5" --out "$DIR/again.ckvt"
    run -66 "$CKVC" fit -q --tables "$DIR/no.ckvt" "$DIR/b.h5" --out "$DIR/x.ckvt"
    run -65 "$CKVC" fit -q --tables "$DIR/a.h5" "$DIR/b.h5" --out "$DIR/x.ckvt"
}
