# The shapes of a large model (GQA 32/8, untied widths, a vocabulary that is no multiple of a tile) at a fortieth of the size; the true
# size is `make test-large`.
bats_require_minimum_version 1.5.0

@test "random weights in a large model's shape: inspect, perplexity with and without room for copies, calibrate, fit" {
    CKVC=${CKVC:-$PWD/build/release/ckvc}
    TMPDIR=$BATS_TEST_TMPDIR run -0 tests/tools/large.sh "$CKVC" "$(dirname "$CKVC")/tools/make_model" 88 2 32 8 16 512 1792 16033
    [[ "$output" == *"end to end"* ]]
}
