# Options and words of the last release under their old names: they do what the new ones do, and one line says the new name.
load helper

setup_file() {
    prompts 4 >"$DIR/prompts.jsonl"
    "$CKVC" calibrate "${OVER[@]}" --side demand --budget 16 -q --demand-floor 0.25 --out "$DIR/demand"
    "$CKVC" fit "$DIR/demand" --mode uniform --ranking window --kept-floor 1 --no-prov -q --out "$DIR/new.ckvt"
}

# warned LINE...: what standard error says of names is these warnings, in this order
warned() {
    diff <(printf 'warning: %s\n' "$@") <(grep ' is called ' <<<"$stderr")
}

@test "an old name of an option, or an old word, gives what the new one does" {
    run -0 --separate-stderr "$CKVC" calibrate "${OVER[@]}" --side demand --budget 16 -q --floor 0.25 --out "$DIR/old-demand"
    warned "--floor is called --demand-floor now"
    diff <(shard_sums "$DIR/demand") <(shard_sums "$DIR/old-demand")
    run -0 --separate-stderr "$CKVC" fit "$DIR/demand" --mode shared --score=window --c-min 1 --no-prov -q --out "$DIR/old.ckvt"
    warned "--mode: shared is called uniform now" "--score is called --ranking now" "--c-min is called --kept-floor now"
    cmp "$DIR/new.ckvt" "$DIR/old.ckvt"
    score() { "$CKVC" score "${OVER[@]}" --table "$DIR/new.ckvt" --limit 1 -q "$@"; }
    score --mode heads --ranking paper --kept-floor 0.5 >"$DIR/new.jsonl"
    run -0 --separate-stderr score --mode heads --score paper --c-min 0.5
    warned "--score is called --ranking now" "--c-min is called --kept-floor now"
    diff "$DIR/new.jsonl" - <<<"$output"
}

@test "old names in files and variables, too: the place is named, and the value is the new option's" {
    printf '# of the last release\nmode = shared\n\nscore = paper\nc-min = 0.5\nfloor = 0.1\n' >"$DIR/old.conf"
    run -0 --separate-stderr env CKVC_FLOOR=0.3 "$CKVC" compile --config "$DIR/old.conf" --print-config
    warned "$DIR/old.conf:2: mode: shared is called uniform now" "$DIR/old.conf:4: score: --score is called --ranking now" \
        "$DIR/old.conf:5: c-min: --c-min is called --kept-floor now" "$DIR/old.conf:6: floor: --floor is called --demand-floor now" \
        "CKVC_FLOOR: --floor is called --demand-floor now"
    for line in "mode = uniform  # config file" "ranking = paper  # config file" "kept-floor = 0.5  # config file" "demand-floor = 0.3  # environment"; do
        grep -qx "$line" <<<"$output" || { echo "no $line in $output"; return 1; }
    done
    # another verb's option is nobody's mistake, under either name
    run -0 --separate-stderr env CKVC_FLOOR=0.3 CKVC_DEMAND_FLOOR=0.3 "$CKVC" fit --print-config
    [ -z "$stderr" ]
    ! grep floor <<<"$output" | grep -v kept-floor
}

@test "a wrong value is refused under the new name; help has the new names alone" {
    run -64 --separate-stderr "$CKVC" score --c-min 2
    [[ $stderr == *"--kept-floor: got 2, wanted -1 to 1"* ]]
    run -0 "$CKVC" compile --help all
    [[ $output == *"--mode uniform|heads|layers"* && $output == *"--ranking paper|window|learned"* && $output == *"--kept-floor F"* && $output == *"--demand-floor F"* ]]
    ! grep -E -- '--(score|c-min|floor)\b' <<<"$output"
}

@test "the Python package's command line takes them likewise" {
    /usr/bin/python3 -c 'import numpy' 2>/dev/null || skip "numpy is not installed (apt-get install -y python3-numpy)"
    run -0 --separate-stderr check '
sys.path.insert(0, "python")
from ckvc.command_line import Parser
p = Parser(prog="x")
p.add_argument("--kept-floor", was="--c-min", type=float)
p.add_argument("-m", "--mode", word_was=("shared", "uniform"), choices=("heads", "uniform"))
for words in ["--c-min", "0.5", "--mode", "shared"], ["--c-min=0.5", "-m", "shared"], ["--kept-floor", "0.5", "--mode=uniform"]:
    print(vars(p.parse_args(words)))'
    [ "$(sort -u <<<"$output")" = "{'kept_floor': 0.5, 'mode': 'uniform'}" ]
    warned "--c-min is called --kept-floor now" "--mode: shared is called uniform now" "--c-min is called --kept-floor now" "--mode: shared is called uniform now"
}
