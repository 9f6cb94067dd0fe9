/* Prompt means of per-head statistics: see head_signature.h. */
#include "cql/fit/head_signature.h"

#include <string.h>
#include <stdlib.h>

#include "formats/shard/shard_rows.h"
#include "lib/base/memory.h"

bool head_signature_there(const shard *s) {
    return s->rho_sd != NULL && s->own_recent != NULL && s->own_entropy != NULL;
}

void head_signature_add(double *sums, const shard *s, size_t p) {
    size_t heads = (size_t)s->h.n_layers * s->h.n_kv_heads;
    for (size_t i = 0; i < heads; ++i) {
        sums[3 * i] += s->rho_sd[p * heads + i];
        sums[3 * i + 1] += s->own_recent[p * heads + i];
        sums[3 * i + 2] += s->own_entropy[p * heads + i];
    }
}

static ckvc_status add_shard(head_signature *out, const shard *s, const char *where,
                             ckvc_err *err) {
    if (!head_signature_there(s)) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: its scan has no statistics of heads", where);
    }
    size_t heads = (size_t)s->h.n_layers * s->h.n_kv_heads;
    if (out->values == NULL) {
        ckvc_status st = shard_header_copy(&out->h, &s->h, err);
        if (st != CKVC_OK) { return st; }
        out->values = ckvc_calloc(heads * 3, sizeof *out->values);
    }
    if (s->h.n_layers != out->h.n_layers || s->h.n_kv_heads != out->h.n_kv_heads) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: shards of %u x %u and of %u x %u heads", where,
                         out->h.n_layers, out->h.n_kv_heads, s->h.n_layers, s->h.n_kv_heads);
    }
    for (size_t p = 0; p < s->n_prompts; ++p) {
        if (strcmp(s->prompts[p].split, "heldout") != 0) {
            head_signature_add(out->values, s, p);
            out->n_prompts++;
        }
    }
    return CKVC_OK;
}

ckvc_status head_signature_read(const run_dir *run, head_signature *out, ckvc_err *err) {
    *out = (head_signature){0};
    const run_pass *scan = NULL;
    for (size_t i = 0; i < run_pass_count(run); ++i) {
        if (run_pass_at(run, i)->number == 0 && run_pass_at(run, i)->complete) {
            scan = run_pass_at(run, i);
        }
    }
    if (scan == NULL) {
        return ckvc_fail(err, CKVC_E_DATA, "%s: has no complete scan; `ckvc scan` makes one",
                         run_path(run));
    }
    ckvc_status st = CKVC_OK;
    for (size_t k = 0; st == CKVC_OK && k < scan->n_shards; ++k) {
        shard *rows = NULL;
        if ((st = run_read_shard(run, scan, k, &rows, err)) == CKVC_OK) {
            st = add_shard(out, rows, run_path(run), err);
        }
        shard_free(rows);
    }
    if (st == CKVC_OK && out->n_prompts == 0) {
        st = ckvc_fail(err, CKVC_E_DATA, "%s: its scan has no prompts that are not held out",
                       run_path(run));
    }
    if (st == CKVC_OK) {
        for (size_t i = 0; i < (size_t)out->h.n_layers * out->h.n_kv_heads * 3; ++i) {
            out->values[i] /= (double)out->n_prompts;
        }
    } else {
        head_signature_fini(out);
    }
    return st;
}

void head_signature_fini(head_signature *s) {
    shard_header_fini(&s->h);
    free(s->values);
    *s = (head_signature){0};
}
