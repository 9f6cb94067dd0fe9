/* ckvc transfer: a table mapped to another model's layers and heads by relative position (method.md section 9). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/options.h"
#include "cmd/verbs.h"
#include "cql/transfer.h"
#include "formats/model_config.h"
#include "formats/table_file.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"

typedef struct transfer_cli {
    const char *to_model, *to_shape, *out, *heads;
    bool force, json;
} transfer_cli;

/* What the table goes to. Names are NULL when only a shape was given. */
typedef struct transfer_target {
    uint32_t n_layers, n_heads, n_query_heads; /* heads of the table's own head axis; query heads */
    char *model_name;
    char family[16];
} transfer_target;

static ckvc_status parse_shape(const char *text, transfer_target *to, ckvc_err *err)
{
    unsigned L, G;
    int end = 0;
    if (sscanf(text, "%5u,%5u%n", &L, &G, &end) != 2 || text[end] || L < 1 || G < 1 || L > CKVC_TABLE_MAX_EXTENT ||
        G > CKVC_TABLE_MAX_EXTENT) {
        return ckvc_fail(err, CKVC_E_USAGE, "--to-shape: got '%s', wanted LAYERS,HEADS, each 1 to %u", text, CKVC_TABLE_MAX_EXTENT);
    }
    to->n_layers = L;
    to->n_heads = to->n_query_heads = G; /* how many query heads share a KV head is not known, and changes nothing */
    return CKVC_OK;
}

/* The last component of a folder's path. */
static char *folder_name(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') {
        n--;
    }
    size_t begin = n;
    while (begin && path[begin - 1] != '/') {
        begin--;
    }
    return ckvc_format("%.*s", (int)(n - begin), path + begin);
}

static ckvc_status read_target(const transfer_cli *c, const ckvc_table *from, transfer_target *to, ckvc_err *err)
{
    if (c->to_shape) {
        return parse_shape(c->to_shape, to, err);
    }
    model_shape shape;
    ckvc_status st = model_config_read(c->to_model, &shape, err);
    if (st != CKVC_OK) {
        return st;
    }
    to->n_layers = (uint32_t)shape.n_layers;
    to->n_query_heads = (uint32_t)shape.n_heads;
    to->n_heads = from->head_axis ? to->n_query_heads : (uint32_t)shape.n_kv_heads;
    memcpy(to->family, shape.family, sizeof to->family);
    to->model_name = folder_name(c->to_model);
    return to->model_name ? CKVC_OK : ckvc_fail_memory(err, "a model's name", strlen(c->to_model));
}

/* Weights and thresholds, mapped as action indices. The grids, budgets and bin edges are the source's. */
static ckvc_status map_values(const ckvc_table *from, ckvc_table *to, ckvc_err *err)
{
    uint32_t L = from->n_layers, G = from->n_heads, L2 = to->n_layers, G2 = to->n_heads, nB = from->n_budgets;
    size_t cells = ckvc_tau_index(from, 1, 0, 0, 0), n_source = cells * L, n_target = cells * L2;
    n_source = n_source > (size_t)L * G ? n_source : (size_t)L * G;
    n_target = n_target > (size_t)L2 * G2 ? n_target : (size_t)L2 * G2;
    uint32_t *source = ckvc_alloc(n_source, sizeof *source), *target = ckvc_alloc(n_target, sizeof *target);
    ckvc_status st = CKVC_OK;
    if (!source || !target || cells > UINT32_MAX) {
        st = ckvc_fail_memory(err, "transferring a table", (n_source + n_target) * sizeof *source);
        goto done;
    }
    memcpy(to->budgets, from->budgets, nB * sizeof *to->budgets);
    memcpy(to->head_grid, from->head_grid, from->n_head_actions * sizeof *to->head_grid);
    memcpy(to->gate_grid, from->gate_grid, from->n_gate_actions * sizeof *to->gate_grid);
    memcpy(to->edges_entropy, from->edges_entropy, (from->n_entropy_bins - 1) * sizeof *to->edges_entropy);
    memcpy(to->edges_ppl, from->edges_ppl, (from->n_ppl_bins - 1) * sizeof *to->edges_ppl);
    for (uint32_t b = 0; b < nB; b++) {
        for (uint32_t i = 0; i < L * G; i++) {
            source[i] = (uint32_t)ckvc_grid_index(from->head_grid, from->n_head_actions, from->weight[(size_t)i * nB + b]);
        }
        transfer_heads(L, G, source, L2, G2, target);
        for (uint32_t i = 0; i < L2 * G2; i++) {
            to->weight[(size_t)i * nB + b] = (float)to->head_grid[target[i]];
        }
    }
    for (size_t i = 0; i < cells * L; i++) {
        source[i] = (uint32_t)ckvc_grid_index(from->gate_grid, from->n_gate_actions, from->tau[i]);
    }
    transfer_layers(L, (uint32_t)cells, source, L2, target);
    for (size_t i = 0; i < cells * L2; i++) {
        to->tau[i] = (float)to->gate_grid[target[i]];
    }
done:
    free(source);
    free(target);
    return st;
}

/* META of the new table: what the source was made with, but of the target; what the fit found out stays behind, since nothing was
 * fitted here. */
static ckvc_status describe_transfer(const transfer_cli *c, const table_file *from, const transfer_target *to, table_file *out,
                                     ckvc_err *err)
{
    const char *family = to->family[0] ? to->family : NULL;
    const ckvc_table *s = from->table;
    json_decref(out->meta);
    out->meta = json_deep_copy(from->meta);
    json_t *source_fingerprint = json_object_get(from->meta, "fingerprint");
    out->xfer =
        json_pack("{s:s, s:O?, s:n, s:s?, s:[I,I], s:[I,I], s:s, s:s, s:s, s:s}", "source", from->content_id, "source_fingerprint",
                  source_fingerprint, "target_fingerprint", "target_model", to->model_name, "source_shape", (json_int_t)s->n_layers,
                  (json_int_t)s->n_heads, "target_shape", (json_int_t)to->n_layers, (json_int_t)to->n_heads, "layers",
                  "relative-depth", "heads", c->heads, "edges", "source", "rounding", "action-index-half-down");
    if (!out->meta || !out->xfer ||
        json_object_update_new(out->meta, json_pack("{s:s?, s:s?, s:n, s:s}", "model_name", to->model_name, "family", family,
                                                    "fingerprint", "source", from->content_id))) {
        return ckvc_fail_memory(err, "describing a transfer", 0);
    }
    static const char *const of_the_fit[] = {"diagnostics", "counts", "unsupported"};
    for (size_t i = 0; i < sizeof of_the_fit / sizeof *of_the_fit; i++) {
        json_object_del(out->meta, of_the_fit[i]);
    }
    json_object_del(json_object_get(out->meta, "solver"), "certificate");
    return CKVC_OK;
}

static bool same_file(const char *a, const char *b)
{
    struct stat sa, sb;
    return stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_dev == sb.st_dev && sa.st_ino == sb.st_ino;
}

static ckvc_status transfer_table(const transfer_cli *c, const char *path, ckvc_err *err)
{
    table_file *from = NULL, *out = NULL;
    transfer_target to = {0};
    ckvc_status st = table_file_read(path, &from, err);
    if (st != CKVC_OK) {
        return st;
    }
    const ckvc_table *s = from->table;
    if (same_file(path, c->out)) {
        st = ckvc_fail(err, CKVC_E_CREATE, "%s: is the table that is read; an input is never overwritten, give another --out",
                       c->out);
        goto done;
    }
    st = read_target(c, s, &to, err);
    if (st != CKVC_OK) {
        goto done;
    }
    uint64_t n_values = to.n_layers * ((uint64_t)to.n_heads * s->n_budgets + ckvc_tau_index(s, 1, 0, 0, 0));
    if (n_values > CKVC_TABLE_MAX_BYTES / sizeof(float)) {
        st = ckvc_fail(err, CKVC_E_USAGE, "a table of %u layers and %u heads would be over the format's %llu bytes", to.n_layers,
                       to.n_heads, (unsigned long long)CKVC_TABLE_MAX_BYTES);
        goto done;
    }
    out = table_file_create(to.n_layers, to.n_heads, s->n_entropy_bins, s->n_ppl_bins, s->n_budgets, s->n_head_actions,
                            s->n_gate_actions, false);
    if (!out) {
        st = ckvc_fail_memory(err, "a table", 0);
        goto done;
    }
    out->table->n_query_heads = to.n_query_heads;
    out->table->window = s->window;
    out->table->head_axis = s->head_axis;
    out->table->op = s->op;
    st = map_values(s, out->table, err);
    if (st == CKVC_OK) {
        st = describe_transfer(c, from, &to, out, err);
    }
    if (st == CKVC_OK) {
        st = table_file_write(out, c->out, c->force, err);
    }
    if (st != CKVC_OK) {
        goto done;
    }
    if (c->json) {
        ckvc_buffer line = {0};
        json_t *o = json_pack("{s:s, s:s, s:O}", "file", c->out, "content_id", out->content_id, "transfer", out->xfer);
        ckvc_json_append(&line, o);
        printf("%s\n", line.data ? (const char *)line.data : "");
        ckvc_buffer_fini(&line);
        json_decref(o);
    } else {
        printf("%s: %u layers x %u heads -> %u x %u, content id %s\n", c->out, s->n_layers, s->n_heads, to.n_layers, to.n_heads,
               out->content_id);
    }
done:
    free(to.model_name);
    table_file_free(from);
    table_file_free(out);
    return st;
}

int cmd_transfer(int argc, char **argv)
{
    static const verb_text text = {"transfer", "map a table to another model by relative depth",
                                   "ckvc transfer T.ckvt (--to-model DIR | --to-shape L,G) --out T2.ckvt [options]",
                                   "  ckvc transfer tables.ckvt --to-model models/small --out small.ckvt\n"
                                   "  ckvc transfer tables.ckvt --to-shape 24,8 --out mapped.ckvt\n"};
    transfer_cli c = {.heads = "index"};
    opt opts[] = {
        {OPT_TEXT, "to-model", 0, &c.to_model, "DIR", "target model, folder or GGUF file; only its shape is read", 0, 0},
        {OPT_TEXT, "to-shape", 0, &c.to_shape, "L,G", "target layers and heads, without a model", 0, 0},
        {OPT_TEXT, "out", 'o', &c.out, "FILE", "the table to write", 0, 0},
        {OPT_CHOICE, "heads", 0, &c.heads, "index", "how heads are matched: relative position within the layer", 0, 0},
        {OPT_FLAG, "force", 'f', &c.force, "", "overwrite FILE", 0, 0},
        {OPT_FLAG, "json", 0, &c.json, "", "machine-readable output", 0, 0},
        {0},
    };
    opt_args args;
    int rc;
    if (!opts_parse(&text, opts, argc, argv, &args, &rc)) {
        return rc;
    }
    ckvc_err err = {0};
    if (args.n != 1) {
        rc = cmd_usage("transfer", "got %d tables, wanted one: ckvc transfer T.ckvt --to-model DIR --out T2.ckvt", args.n);
    } else if (!c.to_model == !c.to_shape) {
        rc = cmd_usage("transfer", "wanted one of --to-model DIR and --to-shape L,G");
    } else if (!c.out) {
        rc = cmd_usage("transfer", "--out FILE is needed: the table to write");
    } else {
        rc = transfer_table(&c, args.items[0], &err) == CKVC_OK ? 0 : cmd_fail("transfer", &err);
    }
    free(args.items);
    return rc;
}
