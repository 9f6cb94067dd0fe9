# A table, a scan and records of one model in two files, and of another model of its shape.
load helper

# model_like OUT SCALE: $MODEL with float32 weights, its matrices moved by so much of their spread.
model_like() {
    mkdir "$1"
    cp "$MODEL"/{config,tokenizer}.json "$1"
    check '
import struct, numpy as np
raw = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
head, body, out, at, draw = json.loads(raw[8 : 8 + n]), raw[8 + n :], b"", 0, np.random.RandomState(1)
head.pop("__metadata__", None)
for name, t in sorted(head.items()):
    x = (np.frombuffer(body[slice(*t["data_offsets"])], "<u2").astype("<u4") << 16).view("<f4").reshape(t["shape"])
    if x.ndim == 2:
        x = x + float(sys.argv[3]) * x.std() * draw.randn(*x.shape)
    out += x.astype("<f4").tobytes()
    t.update(dtype="F32", data_offsets=[at, len(out)])
    at = len(out)
text = json.dumps(head).encode()
open(sys.argv[2], "wb").write(struct.pack("<Q", len(text)) + text + out)' "$MODEL/model.safetensors" "$1/model.safetensors" "$2"
}

setup_file() {
    prompts 4 >"$DIR/prompts.jsonl"
    "$CKVC" calibrate --side demand "${OVER[@]}" --budget 0.25 -q --out "$DIR/run"
    "$CKVC" fit "$DIR/run" --out "$DIR/t.ckvt" -q
    model_like "$DIR/as-f32" 0
    model_like "$DIR/tuned" 0.02
    check '
sys.path.insert(0, "python")
from ckvc.exchange import arrays_of, table_bytes
from ckvc.table import Table
arrays = arrays_of(Table.read(sys.argv[1]))
assert arrays.pop("mODEL").tobytes().startswith(b"{\"sketch\":\"1 000f ")
open(sys.argv[2], "wb").write(table_bytes("old", arrays))' "$DIR/t.ckvt" "$DIR/old.ckvt"
}

# of MODEL VERB OPTION...: over the prompts
of() { "$CKVC" "$2" --model "$1" --manifest "$DIR/prompts.jsonl" --window 16 -q "${@:3}"; }

@test "a table is served on its model in another file, with one line that names both" {
    of "$MODEL" score --continuation 16 --table "$DIR/t.ckvt" --budget 0.25 >"$DIR/own.jsonl" 2>"$DIR/own.err"
    of "$DIR/as-f32" score --continuation 16 --table "$DIR/t.ckvt" --budget 0.25 >"$DIR/f32.jsonl" 2>"$DIR/f32.err"
    [ "$(grep -c 'weights are the same' "$DIR/own.err")" = 0 ]
    [ "$(grep -c 'weights are the same' "$DIR/f32.err")" = 1 ]
    grep -q 't.ckvt: was made for ckvc-tiny-4l (.*) and is used for as-f32 (.*), whose weights are the same as far as rounding lets one tell (their norms differ by 0.0000 and their matrices by 0.0000, ' "$DIR/f32.err"
    check '
own, f32 = ([json.loads(x) for x in open(p)] for p in sys.argv[1:])
assert len(own) == 4 and {x["model"] for x in own}.isdisjoint(x["model"] for x in f32)
assert [x["loss_comp"] for x in own] == [x["loss_comp"] for x in f32]' "$DIR/own.jsonl" "$DIR/f32.jsonl"
    of "$DIR/as-f32" generate --table "$DIR/t.ckvt" --max-new 2 --limit 1 2>"$DIR/err" >"$DIR/text"
    grep -q 'weights are the same' "$DIR/err"
}

@test "no table of another model of the shape is served, nor one without a sketch on another file" {
    fails 65 '' of "$DIR/tuned" score --continuation 16 --table "$DIR/t.ckvt" --budget 0.25
    [[ $output == *"t.ckvt: was made for model "*", and their norms differ by 0.0000 and their matrices by 0.02"*", where rounding may by 0.0030 and 0.0032; "* ]]
    of "$MODEL" score --continuation 16 --table "$DIR/old.ckvt" --budget 0.25 >"$DIR/old.jsonl"
    fails 65 '' of "$DIR/as-f32" score --continuation 16 --table "$DIR/old.ckvt" --budget 0.25
    [[ $output == *"old.ckvt: was made for model "*", and one of them has no sketch of its model; "* ]]
}

@test "the sketch is no part of a table's content id" {
    [ "$(content_id "$DIR/t.ckvt")" = "$(content_id "$DIR/old.ckvt")" ]
}

@test "rewards of the other file improve the table, and a scan of it serves; those of another model do not" {
    "$CKVC" scan "${OVER[@]}" -q --out "$DIR/scan"
    for model in as-f32 tuned; do
        of "$DIR/$model" calibrate --side demand --continuation 16 --budget 0.25 --out "$DIR/of-$model"
    done
    "$CKVC" fit "$DIR/run" "$DIR/of-as-f32" --out "$DIR/both.ckvt" -q
    fails 65 '' "$CKVC" fit "$DIR/run" "$DIR/of-tuned" --out "$DIR/mixed.ckvt" -q
    [[ $output == *"fingerprint is "* ]]
    of "$DIR/as-f32" calibrate --scan "$DIR/scan" --continuation 16 --budget 16 --variants 4 --bins 2,2 --min-cell 1 --out "$DIR/logged" 2>"$DIR/err"
    grep -q 'scan: was made for ckvc-tiny-4l .* weights are the same' "$DIR/err"
    fails 65 '' of "$DIR/tuned" calibrate --scan "$DIR/scan" --continuation 16 --budget 16 --variants 4 --bins 2,2 --min-cell 1 --out "$DIR/none"
}

@test "a tensor that no model has, of whole numbers, beside the model's own" {
    cp -r "$DIR/as-f32" "$DIR/more"
    check '
import struct
raw = open(sys.argv[1], "rb").read()
n = struct.unpack("<Q", raw[:8])[0]
head, body = json.loads(raw[8 : 8 + n]), raw[8 + n :]
head["model.layers.0.x"] = {"dtype": "I64", "shape": [4], "data_offsets": [len(body), len(body) + 32]}
text = json.dumps(head).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(text)) + text + body + bytes(32))' "$DIR/more/model.safetensors"
    of "$DIR/more" score --continuation 16 --table "$DIR/t.ckvt" --budget 0.25 >"$DIR/more.jsonl" 2>"$DIR/more.err"
    [[ $(<"$DIR/more.err") == *"1 of "*" tensors are not part of"* ]]
    losses() { python3 -c 'import json, sys; [print(json.loads(line)["loss_comp"]) for line in sys.stdin]'; }
    diff <(of "$DIR/as-f32" score --continuation 16 --table "$DIR/t.ckvt" --budget 0.25 2>/dev/null | losses) <(losses <"$DIR/more.jsonl")
}
