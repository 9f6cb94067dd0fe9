#!/usr/bin/env bats
# Tables with budgets for heads: what inspect and verify say of them.

load helper

TABLE=tests/golden/table/shares.ckvt

setup() { DIR=$(mktemp -d); }
teardown() { rm -rf "$DIR"; }

@test "inspect prints shares, floors and what is recommended" {
    "$CKVC" inspect "$TABLE" --json | python3 -c '
import json, sys
t = json.load(sys.stdin)
L, G, B = (t["shape"][k] for k in ("n_layers", "n_kv_heads", "n_budgets"))
assert [len(t["shares"]), len(t["shares"][0]), len(t["shares"][0][0])] == [L, G, B], t["shares"]
assert t["layer_shares"] == [[1, 1]] and t["c_min"][1] == {"budget": 64, "floor": 0.5, "recent": 8}
assert t["score"][0] == {"budget": 0.25, "mode": "heads", "score": "window", "window": 32, "pool": 7, "norm": True, "features": 0}'
    run "$CKVC" inspect "$TABLE"
    [[ $output == *"shares:           0.25 ... 1.75"* ]]
    [[ $output == *"layer_shares:     1 ... 1"* ]]
    run "$CKVC" verify "$TABLE"
    [ "$output" = "$TABLE: ok, table" ]
    run "$CKVC" inspect tests/golden/table/evidence.ckvt
    [[ $output != *shares* ]]
}

@test "inspect prints a learned score, and one line of it" {
    local table=tests/golden/table/learned.ckvt
    "$CKVC" inspect "$table" --json | python3 -c '
import json, sys
t = json.load(sys.stdin)
L, G = t["shape"]["n_layers"], t["shape"]["n_kv_heads"]
f = t["features"]
assert f["version"] == 1 and f["n"] == 26 and f["mass"] == [[0.75, 0.25]], f
assert [len(f["theta"]), len(f["theta"][0]), len(f["theta"][0][0])] == [L, G, f["n"]]
assert t["score"][0] == {"budget": 0.25, "mode": "heads", "score": "learned", "window": 64, "pool": 0, "norm": False, "features": 1}'
    run "$CKVC" inspect "$table"
    [[ $output == *"features:         version 1, 26 a head, mass 0.25 ... 0.75"* ]]
    run "$CKVC" verify "$table"
    [ "$output" = "$table: ok, table" ]
}

@test "a share below zero is one line, and 65" {
    python3 - "$TABLE" "$DIR/t.ckvt" <<'PY'
import struct, sys, zlib
data = bytearray(open(sys.argv[1], "rb").read())
for i in range(struct.unpack_from("<I", data, 48)[0]):
    at = 128 + 112 * i
    if data[at : at + 8] == b"SHARE\0\0\0":
        offset, stored = struct.unpack_from("<QQ", data, at + 56)
        struct.pack_into("<d", data, offset, -1.0)
        struct.pack_into("<I", data, at + 104, zlib.crc32(data[offset : offset + stored]))
struct.pack_into("<I", data, 120, zlib.crc32(data[128 : 128 + 112 * struct.unpack_from("<I", data, 48)[0]]))
struct.pack_into("<I", data, 124, zlib.crc32(data[:124]))
open(sys.argv[2], "wb").write(data)
PY
    run "$CKVC" verify "$DIR/t.ckvt"
    [ "$status" -eq 65 ]
    [ "$output" = "ckvc verify: $DIR/t.ckvt: section SHARE[0] is -1: shares are finite and not below 0" ]
}
