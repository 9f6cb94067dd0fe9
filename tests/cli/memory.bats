# Memory that is out in the middle of a run: 71 and one line; what was published stays, and --resume ends with the same bytes.
RANDOM_MODEL=1
load helper

setup_file() {
    prompts 12 >"$DIR/prompts.jsonl"
    "${CC:-cc}" -shared -fPIC -o "$DIR/fault.so" tests/faults/fault.c -ldl
}

# short_of_memory OUT [VARIABLE=VALUE ...]: a calibration on the preloaded malloc; one thread, so that calls have their numbers.
short_of_memory() {
    local out=$1
    shift
    env "$@" FAULT_CALL=malloc FAULT_SIZE=8192 LD_PRELOAD="$DIR/fault.so" "$CKVC" calibrate "${SMALL[@]}" --manifest "$DIR/prompts.jsonl" --out "$out" --threads 1
}

@test "memory that is out ends a calibration with 71 and one line; --resume goes on to the same bytes" {
    ldd "$CKVC" | grep -qE 'libasan|libtsan' && skip "a sanitiser has a malloc of its own"
    short_of_memory "$DIR/run" FAULT_COUNT="$DIR/count"
    local calls part at shards ended=0 said=0 first=0
    calls=$(tr -d ' ' <"$DIR/count")
    for part in 3 5 8 35 60 70 80 90 97; do
        at=$((calls * part / 100))
        run --separate-stderr short_of_memory "$DIR/out-$part" FAULT_AT=$at
        if [ "$status" -eq 139 ]; then # HDF5's own, of the first file: tests/faults/README.md
            first=$((first + 1))
            rm -rf "$DIR/out-$part"
            run --separate-stderr short_of_memory "$DIR/out-$part" FAULT_AT=$((at + 1))
        fi
        output=$stderr
        [ -d "$DIR/out-$part" ] || mkdir "$DIR/out-$part" # it ended before it began
        shards=$(find "$DIR/out-$part" -name '*.h5' | wc -l)
        echo "call $at of $calls: exit $status, $shards shards: $output"
        [ "$status" -ne 0 ]
        one_line
        if [[ $output == *"out of memory: "*" bytes"*--resume* ]]; then
            [ "$status" -eq 71 ]
            said=$((said + 1))
        fi
        if [ "$part" -ge 60 ]; then # while it logs: the scan is there, the pass is not
            [ "$status" -eq 71 ]
            [ "$shards" -ge 3 ]
            [ "$shards" -lt 6 ]
            ended=$((ended + 1))
        fi
        calibrate "$DIR/out-$part" --resume
        diff <(shard_sums "$DIR/run") <(shard_sums "$DIR/out-$part")
        "$CKVC" verify "$DIR/out-$part"
    done
    [ "$ended" -eq 5 ]
    [ "$first" -le 1 ]
    [ "$said" -ge 1 ] # the others were HDF5's own calls
}

@test "a limit of addresses: the work is done or one line says that memory is out, and nothing waits for it" {
    ldd "$CKVC" | grep -qE 'libasan|libtsan' && skip "a sanitiser maps terabytes"
    "$CKVC" calibrate --side demand "${OVER[@]}" --budget 0.25 -q --out "$DIR/demand"
    local mb done=0
    for mb in 120 160 200 260 400; do
        run timeout 120 env -u OPENBLAS_NUM_THREADS bash -c "ulimit -v $((mb * 1024)); exec '$CKVC' fit '$DIR/demand' -q --force --out '$DIR/limited.ckvt'"
        echo "$mb MB: exit $status: $output"
        if [ "$status" -eq 0 ]; then
            done=$((done + 1))
        else
            [ "$status" -eq 71 ]; one_line
        fi
    done
    [ "$done" -ge 3 ] # a worker of OpenBLAS's would have had its 128 MiB before
}
