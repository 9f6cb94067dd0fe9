#!/usr/bin/env bats
# Calls that fail, processes that are killed, power that is cut: some of tests/faults/campaign.py, which tries all of them.

load helper

@test "whatever call fails, or where the process ends, the command goes on to the same bytes" {
    ldd "$CKVC" | grep -qE 'libasan|libtsan' && skip "a sanitiser has a malloc of its own"
    run python3 tests/faults/campaign.py --every 150 --only demand,compile,score,merge,report "$CKVC"
    echo "$output"
    [ "$status" -eq 0 ]
    [[ $output == *" 0 failed" ]]
    ! grep -E "(open|write|fsync|rename): 0 calls" <<<"$output"
}
