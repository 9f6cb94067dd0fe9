# Tables with budgets for heads: what inspect and verify say of them.
load helper

TABLE=tests/golden/table/shares.ckvt

setup() { DIR=$(mktemp -d); }
teardown() { rm -rf "$DIR"; }

@test "inspect prints shares, floors and what is recommended" {
    "$CKVC" inspect "$TABLE" --json | check '
t = json.load(sys.stdin)
L, G, B = (t["shape"][k] for k in ("n_layers", "n_kv_heads", "n_budgets"))
assert [len(t["shares"]), len(t["shares"][0]), len(t["shares"][0][0])] == [L, G, B], t["shares"]
assert t["layer_shares"] == [[1, 1]] and t["c_min"][1] == {"budget": 64, "floor": 0.5, "recent": 8}
assert t["score"][0] == {"budget": 0.25, "mode": "heads", "score": "window", "window": 32, "pool": 7, "norm": True, "features": 0}'
    says 0 "shares:           0.25 ... 1.75" "$CKVC" inspect "$TABLE"
    [[ $output == *"layer_shares:     1 ... 1"* ]]
    run "$CKVC" verify "$TABLE"
    [ "$output" = "$TABLE: ok, table" ]
    run "$CKVC" inspect tests/golden/table/evidence.ckvt
    [[ $output != *shares* ]]
}

@test "inspect prints a learned score, and one line of it" {
    local table=tests/golden/table/learned.ckvt
    "$CKVC" inspect "$table" --json | check '
t = json.load(sys.stdin)
L, G = t["shape"]["n_layers"], t["shape"]["n_kv_heads"]
f = t["features"]
assert f["version"] == 1 and f["n"] == 26 and f["mass"] == [[0.75, 0.25]], f
assert [len(f["theta"]), len(f["theta"][0]), len(f["theta"][0][0])] == [L, G, f["n"]]
assert t["score"][0] == {"budget": 0.25, "mode": "heads", "score": "learned", "window": 64, "pool": 0, "norm": False, "features": 1}'
    says 0 "features:         version 1, 26 a head, mass 0.25 ... 0.75" "$CKVC" inspect "$table"
    run "$CKVC" verify "$table"
    [ "$output" = "$table: ok, table" ]
}

# changed TABLE OUT SECTION FORMAT INDEX VALUE: one number of a raw section, its CRC-32 mended
changed() {
    python3 - "$@" <<'PY'
import struct, sys, zlib
table, out, section, code, index, value = sys.argv[1:]
data, value = bytearray(open(table, "rb").read()), float(value) if code in "df" else int(value)
end = 128 + 112 * struct.unpack_from("<I", data, 48)[0]
for at in range(128, end, 112):
    if data[at : at + 8] == section.encode().ljust(8, b"\0"):
        offset, stored = struct.unpack_from("<QQ", data, at + 56)
        struct.pack_into("<" + code, data, offset + struct.calcsize(code) * int(index), value)
        struct.pack_into("<I", data, at + 104, zlib.crc32(data[offset : offset + stored]))
struct.pack_into("<I", data, 120, zlib.crc32(data[128:end]))
struct.pack_into("<I", data, 124, zlib.crc32(data[:124]))
open(out, "wb").write(data)
PY
}

# refused TABLE SECTION FORMAT INDEX VALUE MESSAGE
refused() {
    changed "$1" "$DIR/t.ckvt" "${@:2:4}"
    run -65 "$CKVC" verify "$DIR/t.ckvt"
    [ "$output" = "ckvc verify: $DIR/t.ckvt: section $6" ]
}

@test "shares, floors and a learned score that make no sense are one line, and 65" {
    local learned=tests/golden/table/learned.ckvt
    refused "$TABLE" SHARE d 0 -1 "SHARE[0] is -1: shares are finite and not below 0"
    refused "$TABLE" CMIN d 3 64 "CMIN[1]: c_min is 65, above the 64 tokens of its budget"
    refused "$TABLE" SCORE I 4 1 "SCORE[0]: features of version 1, but section THETA is missing"
    refused $learned SCORE I 4 3 "SCORE[0]: features of version 3 are none that this reader knows"
    refused $learned SCORE I 1 32 "SCORE[0]: window 32, pool 0, norm 0: features of version 1 need 64 rows, no pool and no norm"
    refused $learned THETA f 3 nan "THETA[3] is nan, want a finite value"
    refused $learned MASS d 1 -1 "MASS[1] is -1, want a finite value from 0 up"
}
