#!/usr/bin/env bats
bats_require_minimum_version 1.5.0
# ckvc fit from the outside: bare shards that another program wrote, refusals with their exit codes, equal inputs giving equal bytes.

setup_file() {
    export ROOT="$BATS_TEST_DIRNAME/../.."
    export PY=python3 T="$BATS_FILE_TMPDIR"
    /usr/bin/python3 -c 'import numpy, h5py' 2>/dev/null && PY=/usr/bin/python3
    export WRITE="$ROOT/tests/python/write_bare_shard.py"
    "$PY" -c 'import numpy, h5py' 2>/dev/null || return 0
    "$PY" "$WRITE" "$T/all.h5"
    "$PY" "$WRITE" "$T/a.h5" --prompts 25
    "$PY" "$WRITE" "$T/b.h5" --prompts 35 --first 25
    "$PY" "$WRITE" "$T/other.h5" --prompts 4 --first 100 --continuation 48
}

setup() {
    [ -f "$T/all.h5" ] || skip "h5py is not installed (apt-get install -y python3-h5py)"
}

@test "a bare shard of another producer is fitted: the world's best actions come out" {
    run -0 "$CKVC" fit "$T/all.h5" --out "$T/all.ckvt" --force
    [[ "$output" == *"60 prompts; 12 of 12 states supported"* ]]
    [[ "$output" == *"24 of 24 states supported"* ]]
    [[ "$output" == *"action counts are equal"* ]]
    run -0 "$PY" "$WRITE" --check "$T/all.ckvt"
}

@test "cuts and order of shards, and a second run, give the same bytes" {
    "$CKVC" fit -q --no-prov "$T/all.h5" --out "$T/1.ckvt"
    "$CKVC" fit -q --no-prov "$T/all.h5" --out "$T/2.ckvt"
    "$CKVC" fit -q --no-prov "$T/b.h5" "$T/a.h5" --out "$T/3.ckvt"
    cmp "$T/1.ckvt" "$T/2.ckvt"
    cmp "$T/1.ckvt" "$T/3.ckvt"
}

@test "provenance changes the file, not its content id" {
    one=$("$CKVC" fit -q --json --no-prov "$T/a.h5" --out "$T/p1.ckvt")
    two=$("$CKVC" fit -q --json "$T/a.h5" --out "$T/p2.ckvt")
    [ "$(grep -o '"content_id":"[0-9a-f]*"' <<<"$one")" = "$(grep -o '"content_id":"[0-9a-f]*"' <<<"$two")" ]
    run cmp -s "$T/p1.ckvt" "$T/p2.ckvt"
    [ "$status" -eq 1 ]
}

@test "--json prints one object with the diagnostics" {
    run -0 "$CKVC" fit -q --json --bootstrap 20 "$T/a.h5" --out "$T/j.ckvt"
    "$PY" - "$output" <<'P'
import json, sys
o = json.loads(sys.argv[1])
assert o["head"]["supported"] == 12 and o["gate"]["records"] == 25 * 3 * 2 * 21, o
assert o["head"]["alpha_decided"] == 0 and o["replicates"] == 20, o
P
}

@test "uniform draws: counts are not equal, and the fit says what they decided" {
    "$PY" "$WRITE" "$T/u.h5" --uniform
    run -0 "$CKVC" fit "$T/u.h5" --out "$T/u.ckvt"
    [[ "$output" == *"rank correlation of choice and count"* ]]
}

@test "AdamW says how far it stopped from the minimum" {
    run -0 "$CKVC" fit --solver adamw "$T/a.h5" --out "$T/w.ckvt"
    [[ "$output" == *"from the exact solution"* ]]
}

@test "shards of two plans that do not belong together: 65, the field and both values" {
    run -65 "$CKVC" fit "$T/a.h5" "$T/other.h5" --out "$T/x.ckvt"
    [[ "$output" == *"was made with --continuation 48, "*"a.h5 has 32"* ]]
    [ ! -e "$T/x.ckvt" ]
}

@test "broken shards: one line, 65, no table" {
    for kind in nan range short rank missing attribute type external baseline huge duplicate; do
        "$PY" "$WRITE" "$T/broken.h5" --prompts 3 --break "$kind"
        run "$CKVC" fit "$T/broken.h5" --out "$T/x.ckvt"
        echo "$kind: $status $output"
        [ "$status" -eq 65 ]
        [ "${#lines[@]}" -eq 1 ]
        [[ "$output" == "ckvc fit: "*broken.h5* ]]
        [ ! -e "$T/x.ckvt" ]
        rm "$T/broken.h5"
    done
    head -c 3000 "$T/a.h5" >"$T/torn.h5"
    run -65 "$CKVC" fit "$T/torn.h5" --out "$T/x.ckvt"
    echo "not HDF5" >"$T/text.h5"
    run -65 "$CKVC" fit "$T/text.h5" --out "$T/x.ckvt"
}

@test "usage: what is missing or makes no sense is said" {
    run -64 "$CKVC" fit --out "$T/x.ckvt"
    run -64 "$CKVC" fit "$T/a.h5"
    [[ "$output" == *"--out"* ]]
    run -64 "$CKVC" fit "$T/a.h5" "$T/a.h5" --out "$T/x.ckvt"
    run -64 "$CKVC" fit --shrink "$T/a.h5" --out "$T/x.ckvt"
    run -64 "$CKVC" fit --split heldout "$T/a.h5" --out "$T/x.ckvt"
    run -64 "$CKVC" fit --solver adam "$T/a.h5" --out "$T/x.ckvt"
    run -65 "$CKVC" fit --split nobody "$T/a.h5" --out "$T/x.ckvt"
    run -66 "$CKVC" fit "$T/not-there.h5" --out "$T/x.ckvt"
    run -71 "$CKVC" fit --bootstrap 100000 --memory 64M "$T/a.h5" --out "$T/x.ckvt"
    [[ "$output" == *"at most "*" replicates"* ]]
}

@test "a table that exists is kept unless --force says otherwise" {
    "$CKVC" fit -q "$T/a.h5" --out "$T/kept.ckvt"
    before=$(sha256sum <"$T/kept.ckvt")
    run -73 "$CKVC" fit "$T/b.h5" --out "$T/kept.ckvt"
    [ "$before" = "$(sha256sum <"$T/kept.ckvt")" ]
    run -0 "$CKVC" fit -q --force "$T/b.h5" --out "$T/kept.ckvt"
}

@test "an incoming table of other edges or budgets is refused; a fitting one gives the unsupported cells" {
    "$CKVC" fit -q "$T/a.h5" --out "$T/in.ckvt"
    run -0 "$CKVC" fit -q --tables "$T/in.ckvt" "$T/b.h5" --out "$T/again.ckvt"
    run -66 "$CKVC" fit -q --tables "$T/no.ckvt" "$T/b.h5" --out "$T/x.ckvt"
    run -65 "$CKVC" fit -q --tables "$T/a.h5" "$T/b.h5" --out "$T/x.ckvt"
}
