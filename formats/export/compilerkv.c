/* CompilerKV's folder: see compilerkv.h. What its manifest has no key for and a table needs
 * (window, KV heads) stands in an object "ckvc" of ours, which it leaves alone. */
#include "formats/export/compilerkv.h"

#include "formats/export/foreign_heads.h"
#include "formats/export/npy.h"
#include "formats/export/safetensors_folder.h"
#include "lib/base/files.h"
#include "lib/base/json.h"

#define WEIGHT_LEAST 0.8
#define WEIGHT_MOST  1.5
#define TAU_LEAST    0.8
#define TAU_MOST     1.0
enum { MANIFEST_MAX = 16 << 20, WINDOW = 64 };

/* ---- writing ---- */

static ckvc_status check_paper(const table_file *t, const char *path, ckvc_err *err) {
    const ckvc_table *c = t->table;
    CKVC_FAIL_IF(c->share, err, CKVC_E_MISMATCH,
                 "%s: this table gives heads budgets of their own, which CompilerKV's layout has "
                 "no place for (safetensors, npz and duo-attention do)",
                 path);
    CKVC_FAIL_IF(c->op != CKVC_OPERATOR_PAPER, err, CKVC_E_MISMATCH,
                 "%s: a table of the operator %s, and CompilerKV runs the paper's alone", path,
                 ckvc_operator_name(c->op));
    CKVC_FAIL_IF(c->visible || c->keep_window, err, CKVC_E_MISMATCH,
                 "%s: this table is for alpha %s and the last %u positions kept, CompilerKV's are "
                 "for the paper's alpha and 0",
                 path, c->visible ? "visible" : "paper", c->keep_window);
    const size_t n_weights = ckvc_weight_index(c, c->n_layers, 0, 0),
                 n_taus = ckvc_tau_index(c, c->n_layers, 0, 0, 0);
    for (size_t i = 0; i < n_weights; i++) {
        CKVC_FAIL_IF(c->weight[i] < (float)WEIGHT_LEAST || c->weight[i] > (float)WEIGHT_MOST, err,
                     CKVC_E_MISMATCH, "%s: weight %g is outside of 0.8 ... 1.5, which is refused",
                     path, (double)c->weight[i]);
    }
    for (size_t i = 0; i < n_taus; i++) {
        CKVC_FAIL_IF(c->tau[i] < (float)TAU_LEAST || c->tau[i] > (float)TAU_MOST, err,
                     CKVC_E_MISMATCH, "%s: threshold %g is outside of 0.8 ... 1, which is refused",
                     path, (double)c->tau[i]);
    }
    return CKVC_OK;
}

/* Budgets in tokens: a share of --length. */
static ckvc_status tokens_of(const ckvc_table *c, const export_options *o, const char *path,
                             json_t *out, ckvc_err *err) {
    for (uint32_t b = 0; b < c->n_budgets; b++) {
        CKVC_FAIL_IF(c->budgets[b] < 1.0 && !o->length, err, CKVC_E_USAGE,
                     "%s: budget %g is a share of the prompt, CompilerKV's are tokens: --length T "
                     "says of how many tokens",
                     path, c->budgets[b]);
        const uint32_t tokens = ckvc_budget_tokens(c->budgets[b], (uint32_t)o->length);
        CKVC_FAIL_IF(!tokens, err, CKVC_E_USAGE,
                     "%s: budget %g of --length %llu is less than a token", path, c->budgets[b],
                     (unsigned long long)o->length);
        for (size_t i = 0; i < json_array_size(out); i++) {
            CKVC_FAIL_IF(json_integer_value(json_array_get(out, i)) == tokens, err, CKVC_E_USAGE,
                         "%s: two budgets are %u tokens of a prompt of %llu", path, tokens,
                         (unsigned long long)o->length);
        }
        json_array_append_new(out, json_integer(tokens));
    }
    return CKVC_OK;
}

/* [L][G][nB] -> [nB][L][H], each KV head's weight for all its query heads. */
static void append_weights(ckvc_buffer *b, const ckvc_table *c) {
    const uint32_t H = c->n_query_heads, group = H / c->n_heads;
    const uint64_t dims[4] = {c->n_budgets, c->n_layers, H};
    CKVC_AUTO_FREE double *values =
        ckvc_alloc((size_t)c->n_budgets * c->n_layers, H * sizeof(double));
    size_t at = 0;
    for (uint32_t n = 0; n < c->n_budgets; n++) {
        for (uint32_t l = 0; l < c->n_layers; l++) {
            for (uint32_t h = 0; h < H; h++) {
                values[at++] = (double)c->weight[ckvc_weight_index(c, l, h / group, n)];
            }
        }
    }
    npy_append_f32(b, values, dims, 3);
}

/* [L][E][P][nB] -> [nB][L][E][P] */
static void append_taus(ckvc_buffer *b, const ckvc_table *c) {
    const size_t cells = ckvc_tau_index(c, c->n_layers, 0, 0, 0) / c->n_budgets;
    const uint64_t dims[4] = {c->n_budgets, c->n_layers, c->n_entropy_bins, c->n_ppl_bins};
    CKVC_AUTO_FREE double *values = ckvc_alloc(cells * c->n_budgets, sizeof *values);
    for (uint32_t n = 0; n < c->n_budgets; n++) {
        for (size_t i = 0; i < cells; i++) {
            values[n * cells + i] = (double)c->tau[i * c->n_budgets + n];
        }
    }
    npy_append_f32(b, values, dims, 4);
}

/* States of a side with records, and records of both sides. */
static size_t supported(const table_file *t, ckvc_side which, uint64_t *records) {
    const struct side side = side_of_table(t->table, which);
    size_t n = 0;
    for (size_t s = 0; t->has_evidence && s < side.n_states; s++) {
        uint64_t of_state = 0;
        for (size_t a = 0; a < side.actions.n; a++) {
            of_state += t->evidence[which].n[s * side.actions.n + a];
        }
        n += of_state > 0;
        *records += of_state;
    }
    return n;
}

static void append_manifest(ckvc_buffer *b, const table_file *t, json_t *budgets) {
    const ckvc_table *c = t->table;
    uint64_t head_records = 0, gate_records = 0;
    const size_t head_states = supported(t, CKVC_SIDE_HEAD, &head_records),
                 gate_states = supported(t, CKVC_SIDE_GATE, &gate_records);
    json_auto_t *o = json_pack("{s:i, s:s, s:s, s:s, s:s}", "format_version", 2, "source",
                               "offline-calibration", "algorithm", "horizon-1-cql", "head_table",
                               "W_head.npy", "gate_table", "T_gate.npy");
    JSON_NUMBERS(o, {"canonical_layers", c->n_layers}, {"num_heads", c->n_query_heads},
                 {"num_records", (double)(head_records + gate_records)},
                 {"num_head_records", (double)head_records},
                 {"num_gate_records", (double)gate_records},
                 {"head_supported_states", (double)head_states},
                 {"gate_supported_states", (double)gate_states});
    json_object_set(o, "budget_values", budgets);
    json_object_set_new(o, "entropy_edges",
                        ckvc_json_reals(c->edges_entropy, c->n_entropy_bins - 1));
    json_object_set_new(o, "ppl_edges", ckvc_json_reals(c->edges_ppl, c->n_ppl_bins - 1));
    json_object_set_new(o, "head_actions", ckvc_json_reals(c->head_grid, c->n_head_actions));
    json_object_set_new(o, "gate_actions", ckvc_json_reals(c->gate_grid, c->n_gate_actions));
    json_t *alpha = json_object_get(t->meta, "cql_alpha");
    json_object_set_new(o, "cql", json_pack("{s:O?}", "conservative_weight", alpha));
    json_t *ours = json_pack("{s:s}", "content_id", t->content_id);
    JSON_NUMBERS(ours, {"window", c->window});
    if (!c->head_axis) { json_object_set_new(ours, "n_kv_heads", json_integer(c->n_heads)); }
    json_object_set_new(ours, "budgets", ckvc_json_reals(c->budgets, c->n_budgets));
    json_object_set_new(o, "ckvc", ours);
    ckvc_json_append(b, o);
    ckvc_buffer_text(b, "\n");
}

ckvc_status compilerkv_write(table_file *t, const export_options *o, const char *path,
                             ckvc_buffer *note, ckvc_err *err) {
    const ckvc_table *c = t->table;
    json_auto_t *budgets = json_array();
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer head = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer gate = {0};
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer manifest = {0};
    CKVC_TRY(expanded_check(c, path, err));
    CKVC_TRY(check_paper(t, path, err));
    CKVC_TRY(tokens_of(c, o, path, budgets, err));
    append_weights(&head, c);
    append_taus(&gate, c);
    append_manifest(&manifest, t, budgets);
    note_expanded(note, c);
    CKVC_TRY(export_into(path, "W_head.npy", &head, o, err));
    CKVC_TRY(export_into(path, "T_gate.npy", &gate, o, err));
    return export_into(path, "manifest.json", &manifest, o, err);
}

/* ---- reading ---- */

/* The file that the manifest names, a plain name in the folder. */
static ckvc_status file_named(const char *folder, const json_t *manifest, const char *key,
                              const char *usual, char **out, ckvc_err *err) {
    const json_t *v = json_object_get(manifest, key);
    const char *name = v ? json_string_value(v) : usual;
    CKVC_REFUSE_IF(!name || !*name || strchr(name, '/') || *name == '.', err, folder,
                   "manifest.json: %s is no plain file name", key);
    *out = ckvc_path_join(folder, name);
    return CKVC_OK;
}

/* A list of finite numbers, *n of them; the caller frees. */
static ckvc_status numbers(const char *path, const json_t *list, const char *key, double **out,
                           size_t *n, ckvc_err *err) {
    *n = json_array_size(list);
    CKVC_REFUSE_IF(!json_is_array(list) || *n > CKVC_TABLE_MAX_EXTENT, err, path,
                   "manifest.json: %s is missing, or no list of numbers", key);
    *out = ckvc_alloc(*n, sizeof **out);
    for (size_t i = 0; i < *n; i++) {
        CKVC_REFUSE_IF(!ckvc_json_is_finite(json_array_get(list, i)), err, path,
                       "manifest.json: %s[%zu] is no finite number", key, i);
        (*out)[i] = json_number_value(json_array_get(list, i));
    }
    return CKVC_OK;
}

typedef struct folder_of {
    const char *path;
    json_t *manifest;
    table_array head, gate; /* their dims begin with nB */
    char *head_bytes, *gate_bytes;
    double *budgets, *edges[2], *grids[2];
    size_t n_budgets, n_edges[2], n_grids[2];
} folder_of;

static void folder_fini(folder_of *f) {
    json_decref(f->manifest);
    CKVC_FREE(f->head_bytes, f->gate_bytes, f->budgets, f->edges[0], f->edges[1], f->grids[0],
              f->grids[1]);
}

/* A grid's float32 values, as numpy wrote them, become the doubles that they were rounded from
 * where those are the usual ones. */
static void restore_grid(double *grid, size_t n, const double *usual, size_t n_usual) {
    for (size_t i = 0; i < n; i++) {
        const double near = usual[ckvc_grid_nearest(usual, (uint32_t)n_usual, grid[i])];
        if ((float)near == (float)grid[i]) { grid[i] = near; }
    }
}

static ckvc_status read_grids(folder_of *f, ckvc_err *err) {
    static const char *const keys[2] = {"head_actions", "gate_actions"};
    double usual[2][CKVC_HEAD_ACTIONS];
    static const size_t n_usual[2] = {CKVC_HEAD_ACTIONS, CKVC_GATE_ACTIONS};
    for (int a = 0; a < CKVC_HEAD_ACTIONS; a++) { usual[0][a] = ckvc_head_action(a); }
    for (int a = 0; a < CKVC_GATE_ACTIONS; a++) { usual[1][a] = ckvc_gate_action(a); }
    for (int k = 0; k < 2; k++) {
        const json_t *list = json_object_get(f->manifest, keys[k]);
        if (!list) {
            f->n_grids[k] = n_usual[k];
            f->grids[k] = ckvc_copy(usual[k], n_usual[k], sizeof(double));
            continue;
        }
        CKVC_TRY(numbers(f->path, list, keys[k], &f->grids[k], &f->n_grids[k], err));
        CKVC_REFUSE_IF(!f->n_grids[k] || f->n_grids[k] > CKVC_TABLE_MAX_ACTIONS, err, f->path,
                       "manifest.json: %s has %zu values", keys[k], f->n_grids[k]);
        restore_grid(f->grids[k], f->n_grids[k], usual[k], n_usual[k]);
    }
    return CKVC_OK;
}

/* Budgets: the manifest's, or of arrays without that axis --budget's. "ckvc" has ours. */
static ckvc_status read_budgets(folder_of *f, const import_options *o, ckvc_err *err) {
    const json_t *theirs = json_object_get(f->manifest, "budget_values"),
                 *ours = json_object_get(json_object_get(f->manifest, "ckvc"), "budgets");
    if (ours || (theirs && !json_is_null(theirs))) {
        CKVC_FAIL_IF(o->n_budgets, err, CKVC_E_USAGE,
                     "%s: its manifest has budgets: leave out --budget", f->path);
        return numbers(f->path, ours ? ours : theirs, ours ? "ckvc.budgets" : "budget_values",
                       &f->budgets, &f->n_budgets, err);
    }
    CKVC_FAIL_IF(!o->n_budgets, err, CKVC_E_USAGE,
                 "%s: its manifest has no budget_values: --budget B says what they are", f->path);
    f->n_budgets = o->n_budgets;
    f->budgets = ckvc_copy(o->budgets, o->n_budgets, sizeof(double));
    return CKVC_OK;
}

static ckvc_status read_array(folder_of *f, const char *key, const char *usual, unsigned rank,
                              char **memory, table_array *out, ckvc_err *err) {
    CKVC_AUTO_FREE char *path = NULL;
    CKVC_TRY(file_named(f->path, f->manifest, key, usual, &path, err));
    CKVC_TRY(npy_read_reals(path, rank, rank - 1, memory, out, err));
    if (out->rank < rank) {
        memmove(out->dims + 1, out->dims, (rank - 1) * sizeof *out->dims);
        out->dims[0] = 1;
    }
    for (unsigned d = 0; d < rank; d++) {
        CKVC_REFUSE_IF(out->dims[d] < 1 || out->dims[d] > CKVC_TABLE_MAX_EXTENT, err, path,
                       "dimension %u is %llu, want 1 ... %u", d, (unsigned long long)out->dims[d],
                       CKVC_TABLE_MAX_EXTENT);
    }
    return CKVC_OK;
}

static ckvc_status read_folder(folder_of *f, const import_options *o, ckvc_err *err) {
    CKVC_AUTO_FREE char *manifest = ckvc_path_join(f->path, "manifest.json");
    CKVC_TRY(ckvc_json_read(manifest, MANIFEST_MAX, &f->manifest, err));
    CKVC_TRY(read_array(f, "head_table", "W_head.npy", 3, &f->head_bytes, &f->head, err));
    CKVC_TRY(read_array(f, "gate_table", "T_gate.npy", 4, &f->gate_bytes, &f->gate, err));
    CKVC_TRY(read_budgets(f, o, err));
    CKVC_TRY(read_grids(f, err));
    static const char *const edges[2] = {"entropy_edges", "ppl_edges"};
    for (int k = 0; k < 2; k++) {
        CKVC_TRY(numbers(f->path, json_object_get(f->manifest, edges[k]), edges[k], &f->edges[k],
                         &f->n_edges[k], err));
        CKVC_REFUSE_IF(f->n_edges[k] != f->gate.dims[2 + k] - 1, err, f->path,
                       "%zu %s, the thresholds' %llu bins want one fewer than that", f->n_edges[k],
                       edges[k], (unsigned long long)f->gate.dims[2 + k]);
    }
    CKVC_REFUSE_IF(f->head.dims[0] != f->n_budgets || f->gate.dims[0] != f->n_budgets, err, f->path,
                   "weights of %llu budgets, thresholds of %llu, and %zu budgets",
                   (unsigned long long)f->head.dims[0], (unsigned long long)f->gate.dims[0],
                   f->n_budgets);
    CKVC_REFUSE_IF(f->head.dims[1] != f->gate.dims[1], err, f->path,
                   "weights of %llu layers and thresholds of %llu",
                   (unsigned long long)f->head.dims[1], (unsigned long long)f->gate.dims[1]);
    return CKVC_OK;
}

/* The query heads of a KV head must agree where the table is to have KV heads. */
static ckvc_status take_weights(const folder_of *f, ckvc_table *t, ckvc_err *err) {
    const uint32_t H = t->n_query_heads, group = H / t->n_heads;
    for (size_t i = 0; i < f->head.bytes / ckvt_type_bytes(f->head.type); i++) {
        const uint32_t h = (uint32_t)(i % H), l = (uint32_t)(i / H % t->n_layers),
                       b = (uint32_t)(i / H / t->n_layers);
        const float w = (float)npy_real(&f->head, i);
        float *at = &t->weight[ckvc_weight_index(t, l, h / group, b)];
        CKVC_REFUSE_IF(
            h % group && *at != w, err, f->path,
            "layer %u: query heads %u and %u share a KV head and have the weights %g and %g: "
            "without \"ckvc\" in manifest.json, and without --model, rows are kept as query heads",
            l, h - 1, h, (double)*at, (double)w);
        *at = w;
    }
    return CKVC_OK;
}

static ckvc_status fill(const folder_of *f, ckvc_table *t, ckvc_err *err) {
    memcpy(t->budgets, f->budgets, f->n_budgets * sizeof(double));
    memcpy(t->head_grid, f->grids[0], f->n_grids[0] * sizeof(double));
    memcpy(t->gate_grid, f->grids[1], f->n_grids[1] * sizeof(double));
    memcpy(t->edges_entropy, f->edges[0], f->n_edges[0] * sizeof(double));
    memcpy(t->edges_ppl, f->edges[1], f->n_edges[1] * sizeof(double));
    const size_t cells = ckvc_tau_index(t, t->n_layers, 0, 0, 0) / t->n_budgets;
    for (size_t i = 0; i < cells * t->n_budgets; i++) {
        t->tau[i % cells * t->n_budgets + i / cells] = (float)npy_real(&f->gate, i);
    }
    return take_weights(f, t, err);
}

/* A count of our own object, where it is there. */
static ckvc_status count_of(const char *path, const json_t *ours, const char *key, uint64_t most,
                            uint64_t *out, ckvc_err *err) {
    CKVC_REFUSE_IF(json_object_get(ours, key) && !ckvc_json_get_count(ours, key, most, out), err,
                   path, "manifest.json: ckvc.%s is no whole number from 0 to %llu", key,
                   (unsigned long long)most);
    return CKVC_OK;
}

ckvc_status compilerkv_read(const char *path, const import_options *o, table_file **out,
                            ckvc_err *err) {
    CKVC_AUTO(folder_fini) folder_of f = {.path = path};
    model_heads model;
    CKVC_TRY(model_heads_read(o->model, &model, err));
    CKVC_TRY(read_folder(&f, o, err));
    const json_t *ours = json_object_get(f.manifest, "ckvc");
    const uint32_t H = (uint32_t)f.head.dims[2], L = (uint32_t)f.head.dims[1];
    uint64_t G = model.path ? model.n_kv_heads : 0, window = WINDOW;
    CKVC_TRY(model_heads_check(&model, path, L, H, true, err));
    CKVC_TRY(count_of(path, ours, "window", UINT32_MAX, &window, err));
    if (!G) { CKVC_TRY(count_of(path, ours, "n_kv_heads", H, &G, err)); }
    const bool query_heads = !G; /* nobody says how many share a KV head */
    G = G ? G : H;
    CKVC_REFUSE_IF(H % G, err, path, "%u query heads do not share %llu KV heads", H,
                   (unsigned long long)G);
    ckvc_table *t =
        ckvc_table_create(L, (uint32_t)G, (uint32_t)f.gate.dims[2], (uint32_t)f.gate.dims[3],
                          (uint32_t)f.n_budgets, (uint32_t)f.n_grids[0], (uint32_t)f.n_grids[1]);
    CKVC_REFUSE_IF(!t, err, path, "a table of this shape is over the format's limits");
    t->n_query_heads = H;
    t->head_axis = query_heads;
    t->window = (uint32_t)window;
    const ckvc_status st = fill(&f, t, err);
    if (st != CKVC_OK) {
        ckvc_table_free(t);
        return st;
    }
    return table_of_import(t, path, "compilerkv", &model, out, err);
}
