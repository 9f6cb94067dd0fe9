/* The log of finished prompts beside an unfinished shard, as it is and with CRC-32 sums mended. */
#include "formats/run/durable.h"
#include "formats/shard/shard_codec.h"
#include "lib/base/bytes.h"
#include "lib/base/hash.h"
#include "tests/fuzz/fuzz.h"

static void read_log(const uint8_t *data, size_t size, ckvc_err *err) {
    prompt_log log;
    must(prompt_log_read(fuzz_file("shard.log", data, size), &log, err) == CKVC_OK);
    must(log.size + log.dropped == size);
    for (size_t i = 0; i < log.n_records; i++) {
        CKVC_AUTO(shard_free_at) shard *rows = shard_create();
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer again = {0};
        rows->h.n_layers = rows->h.n_kv_heads = 2;
        if (!fuzz_took(shard_decode(rows, log.records[i].rows, log.records[i].n, err), err)) {
            continue;
        }
        shard_encode(rows, &again);
        must(again.size == log.records[i].n &&
             memcmp(again.data, log.records[i].rows, again.size) == 0);
    }
    prompt_log_free(&log);
}

FUZZ {
    read_log(data, size, err);
    CKVC_AUTO_FREE uint8_t *mended = ckvc_copy(data, size, 1);
    for (size_t at = 0; size - at >= 8;) {
        const uint32_t n = ckvc_get_u32(mended + at);
        if (n > size - at - 8) { break; }
        ckvc_put_u32(mended + at + 4, ckvc_crc32(0, mended + at + 8, n));
        at += 8 + (size_t)n;
    }
    read_log(mended, size, err);
}
