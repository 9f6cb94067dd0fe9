/* Records as lines: see record_lines.h. */
#include "formats/export/record_lines.h"

#include <stdio.h>

#include "lib/base/files.h"
#include "lib/base/json.h"

typedef struct line_writer {
    FILE *f;
    const run_pass *pass;
    const shard *s;
    ckvc_buffer line;
    uint64_t n; /* lines */
} line_writer;

static void writer_fini(line_writer *w) {
    if (w->f) { fclose(w->f); }
    ckvc_buffer_fini(&w->line);
}

/* {"kind":...,"prompt_id":...,"sequence_length":T,"full_loss":...,"budget":tokens,"layer":l */
static void begin_line(line_writer *w, const char *kind, size_t prompt, uint32_t budget,
                       uint32_t layer) {
    const struct shard_prompt *p = &w->s->prompts[prompt];
    json_auto_t *id = json_string(p->id);
    w->line.size = 0;
    ckvc_buffer_printf(&w->line, "{\"kind\":\"%s\",\"prompt_id\":", kind);
    ckvc_json_append(&w->line, id);
    ckvc_buffer_printf(
        &w->line, ",\"sequence_length\":%u,\"full_loss\":%.17g,\"budget\":%u,\"layer\":%u",
        p->n_tokens, p->loss_full, ckvc_budget_tokens(w->s->h.budgets[budget], p->n_tokens), layer);
}

static void end_line(line_writer *w) {
    ckvc_buffer_text(&w->line, "}\n");
    fwrite(w->line.data, 1, w->line.size, w->f); /* asked for once, when it is closed */
    w->n++;
}

static void add_head(line_writer *w, uint32_t head) {
    ckvc_buffer_printf(&w->line, ",\"%s\":%u",
                       w->s->h.n_heads == w->s->h.n_kv_heads ? "head" : "kv_head", head);
}

static void write_logged(line_writer *w) {
    const shard *s = w->s;
    for (size_t i = 0; i < s->n_records; i++) {
        const struct shard_record *r = &s->records[i];
        const struct shard_prompt *p = &s->prompts[r->prompt];
        begin_line(w, ckvc_side_name((ckvc_side)r->side), r->prompt, r->budget, r->layer);
        if (r->head != CKVC_NO_HEAD) { add_head(w, r->head); }
        ckvc_buffer_printf(&w->line,
                           ",\"action\":%.17g,\"compressed_loss\":%.17g,\"reward\":%.17g,"
                           "\"entropy\":%.17g,\"ppl\":%.17g,\"candidate_count\":%u,\"kept\":%u,"
                           "\"paired_policy\":\"%s %s\"",
                           s->h.side[r->side].actions[r->action], r->loss, r->reward, p->r_struct,
                           p->r_sem, r->n_candidates, r->n_kept, w->pass->name, w->pass->plan);
        end_line(w);
    }
}

/* Passes shares and cuts: what was tried alone. */
static void write_shares(line_writer *w) {
    const shard *s = w->s;
    const bool heads =
        shard_action_side(&s->h) == CKVC_SIDE_HEAD && s->h.setting.mode == CKVC_MODE_HEADS;
    const uint32_t n_units = heads ? s->h.n_kv_heads : 1;
    const struct shard_side *side = &s->h.side[shard_action_side(&s->h)];
    size_t at = 0;
    for (size_t p = 0; p < s->n_prompts; p++) {
        for (uint32_t b = 0; b < s->h.n_budgets; b++) {
            for (uint32_t i = 0; i < s->h.n_layers * n_units; i++) {
                for (uint32_t a = 0; a < side->n_actions; a++, at++) {
                    if (!s->action_entries[at]) { continue; }
                    begin_line(w, s->h.pass, p, b, i / n_units);
                    if (heads) { add_head(w, i % n_units); }
                    ckvc_buffer_printf(&w->line,
                                       ",\"action\":%.17g,\"compressed_loss\":%.17g,\"entries\":%u",
                                       side->actions[a], s->action_loss[at], s->action_entries[at]);
                    end_line(w);
                }
            }
        }
    }
}

static void write_demand(line_writer *w) {
    const shard *s = w->s;
    const uint32_t G = s->h.n_kv_heads;
    size_t at = 0;
    for (size_t p = 0; p < s->n_prompts; p++) {
        for (uint32_t b = 0; b < s->h.n_budgets; b++) {
            for (uint32_t i = 0; i < s->h.n_layers * G; i++) {
                begin_line(w, s->h.pass, p, b, i / G);
                add_head(w, i % G);
                ckvc_buffer_printf(&w->line, ",\"entries\":%u", s->demand[at++]);
                end_line(w);
            }
        }
    }
}

static ckvc_status write_pass(line_writer *w, const run_dir *r, ckvc_err *err) {
    for (size_t k = 0; k < w->pass->n_shards; k++) {
        CKVC_AUTO(shard_free_at) shard *s = NULL;
        CKVC_TRY(run_read_shard(r, w->pass, k, &s, err));
        w->s = s;
        switch (shard_kind_of(&s->h)) {
        case SHARD_LOGGED: write_logged(w); break;
        case SHARD_SHARES: write_shares(w); break;
        case SHARD_DEMAND: write_demand(w); break;
        default: return CKVC_OK;
        }
    }
    return CKVC_OK;
}

ckvc_status record_lines_write(const run_dir *r, const export_options *o, const char *path,
                               ckvc_buffer *note, ckvc_err *err) {
    CKVC_AUTO(ckvc_publish_abort) ckvc_publish publish = {0};
    CKVC_AUTO(writer_fini) line_writer w = {0};
    CKVC_TRY(ckvc_publish_begin(&publish, path, o->force, err));
    w.f = fopen(publish.tmp_path, "wb");
    CKVC_FAIL_ERRNO_IF(!w.f, err, CKVC_E_CREATE, "%s", publish.tmp_path);
    for (size_t i = 0; i < run_pass_count(r); i++) {
        w.pass = run_pass_at(r, i);
        CKVC_TRY(write_pass(&w, r, err));
    }
    const bool failed = ferror(w.f) != 0, closed = fclose(ckvc_take(&w.f)) == 0;
    CKVC_FAIL_ERRNO_IF(failed || !closed, err, CKVC_E_IO, "%s: writing", path);
    CKVC_FAIL_IF(!w.n, err, CKVC_E_DATA, "%s: no pass of this run has records", run_path(r));
    ckvc_buffer_printf(note, "%llu records", (unsigned long long)w.n);
    return ckvc_publish_commit(&publish, err);
}
