/* ckvc transfer: a table mapped to another model's layers and heads (method.md section 9), and how
 * it does there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cql/transfer/transfer_table.h"
#include "cmd/common/options.h"
#include "cmd/common/transfer_report.h"
#include "cmd/verbs.h"
#include "formats/model/model_config.h"
#include "formats/table/table_file.h"
#include "lib/base/json.h"
#include "lib/base/memory.h"

typedef struct transfer_cli {
    const char *to_model, *to_shape, *out, *heads, *scan;
    bool force, force_mapping, json;
    transfer_report_cli report;
} transfer_cli;

static ckvc_status parse_shape(const char *text, transfer_target *to, ckvc_err *err) {
    unsigned L, G;
    int end = 0;
    if (sscanf(text, "%5u,%5u%n", &L, &G, &end) != 2 || text[end] || L < 1 || G < 1 ||
        L > CKVC_TABLE_MAX_EXTENT || G > CKVC_TABLE_MAX_EXTENT) {
        return ckvc_fail(err, CKVC_E_USAGE,
                         "--to-shape: got '%s', wanted LAYERS,HEADS, each 1 to %u", text,
                         CKVC_TABLE_MAX_EXTENT);
    }
    to->n_layers = L;
    to->n_heads = to->n_query_heads =
        G; /* how many query heads share a KV head is not known, and changes nothing */
    return CKVC_OK;
}

/* The last component of a folder's path. */
static char *folder_name(const char *path) {
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

/* *name and family [16] hold what *to points to; *name is the caller's to free. */
static ckvc_status read_target(const transfer_cli *c, const ckvc_table *from, transfer_target *to,
                               char **name, char *family, ckvc_err *err) {
    if (c->to_shape) { return parse_shape(c->to_shape, to, err); }
    model_shape shape;
    ckvc_status st = model_config_read(c->to_model, &shape, err);
    if (st != CKVC_OK) { return st; }
    to->n_layers = (uint32_t)shape.n_layers;
    to->n_query_heads = (uint32_t)shape.n_heads;
    to->n_heads = from->head_axis ? to->n_query_heads : (uint32_t)shape.n_kv_heads;
    memcpy(family, shape.family, sizeof shape.family);
    to->family = family;
    to->model_name = *name = folder_name(c->to_model);
    return *name ? CKVC_OK : ckvc_fail_memory(err, "a model's name", strlen(c->to_model));
}

static bool same_file(const char *a, const char *b) {
    struct stat sa, sb;
    return stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
           sa.st_ino == sb.st_ino;
}

static void print_result(const transfer_cli *c, const table_file *from, const table_file *out) {
    if (c->json) {
        ckvc_buffer line = {0};
        json_t *o = json_pack("{s:s, s:s, s:O}", "file", c->out, "content_id", out->content_id,
                              "transfer", out->xfer);
        ckvc_json_append(&line, o);
        printf("%s\n", line.data ? (const char *)line.data : "");
        ckvc_buffer_fini(&line);
        json_decref(o);
    } else {
        printf("%s: %u layers x %u heads -> %u x %u, heads by %s, content id %s\n", c->out,
               from->table->n_layers, from->table->n_heads, out->table->n_layers,
               out->table->n_heads, c->heads, out->content_id);
    }
}

static ckvc_status transfer(const transfer_cli *c, const char *path, int *rc, ckvc_err *err) {
    table_file *from = NULL, *out = NULL;
    run_dir *scan = NULL;
    transfer_target to = {0};
    char *name = NULL, family[sizeof((model_shape *)0)->family] = "";
    ckvc_status st = table_file_read(path, &from, err);
    if (st == CKVC_OK && same_file(path, c->out)) {
        st = ckvc_fail(
            err, CKVC_E_CREATE,
            "%s: is the table that is read; an input is never overwritten, give another --out",
            c->out);
    }
    if (st == CKVC_OK && c->scan) { st = run_open(c->scan, &scan, err); }
    if (st == CKVC_OK && (c->to_model || c->to_shape)) {
        st = read_target(c, from->table, &to, &name, family, err);
    }
    if (st == CKVC_OK && c->report.out) {
        st = transfer_report_check(&c->report, c->to_model, from, err);
    }
    if (st == CKVC_OK) {
        const transfer_options o = {.heads = strcmp(c->heads, "rank") == 0 ? TRANSFER_RANK
                                             : strcmp(c->heads, "signature") == 0
                                                 ? TRANSFER_SIGNATURE
                                                 : TRANSFER_INDEX,
                                    .scan = scan,
                                    .force = c->force_mapping};
        st = transfer_table(from, path, to.n_layers ? &to : NULL, &o, &out, err);
    }
    if (st == CKVC_OK) { st = table_file_write(out, c->out, c->force, err); }
    if (st == CKVC_OK) {
        print_result(c, from, out);
        *rc = c->report.out ? transfer_report(&c->report, c->to_model, c->out, out, c->force) : 0;
    }
    free(name);
    run_close(scan);
    table_file_free(from);
    table_file_free(out);
    return st;
}

int cmd_transfer(int argc, char **argv) {
    static const verb_text text = {
        "transfer", "map a table to another model by relative depth",
        "ckvc transfer T.ckvt (--to-model DIR | --to-shape L,G | --scan RUN) --out T2.ckvt "
        "[options]",
        "  ckvc transfer tables.ckvt --to-model models/small --out small.ckvt\n"
        "  ckvc transfer tables.ckvt --to-shape 24,8 --out mapped.ckvt\n"
        "  ckvc transfer tables.ckvt --heads signature --scan small-scan --out small.ckvt\n"
        "  ckvc transfer tables.ckvt --to-model models/small --out small.ckvt --report report \\\n"
        "      --against compiled.ckvt --manifest heldout.jsonl\n"};
    transfer_cli c = {.heads = "index"};
    opt opts[] = {
        {OPT_TEXT, "to-model", 0, &c.to_model, "DIR",
         "target model, folder or GGUF file; only its shape is read", 0, 0},
        {OPT_TEXT, "to-shape", 0, &c.to_shape, "L,G", "target layers and heads, without a model", 0,
         0},
        {OPT_TEXT, "out", 'o', &c.out, "FILE", "the table to write", 0, 0},
        {OPT_CHOICE, "heads", 0, &c.heads, "index|rank|signature",
         "by position; sorted weights by spread of value norms; by three statistics of each head",
         0, 0},
        {OPT_TEXT, "scan", 0, &c.scan, "RUN",
         "scan of the target: statistics of its heads, its own bin edges, its shape", 0, 0},
        {OPT_FLAG, "force-mapping", 0, &c.force_mapping, "",
         "warn where a mapping makes no sense, in place of refusing", 0, 0},
        {OPT_FLAG, "force", 'f', &c.force, "", "overwrite FILE", 0, 0},
        {OPT_FLAG, "json", 0, &c.json, "", "machine-readable output", 0, 0},
        OPTS_TRANSFER_REPORT(c.report),
        {0},
    };
    opt_args args;
    int rc;
    if (!opts_parse(&text, opts, argc, argv, &args, &rc)) { return rc; }
    ckvc_err err = {0};
    if (args.n != 1) {
        rc = cmd_usage(
            "transfer",
            "got %d tables, wanted one: ckvc transfer T.ckvt --to-model DIR --out T2.ckvt", args.n);
    } else if (c.to_model && c.to_shape) {
        rc = cmd_usage("transfer", "wanted one of --to-model DIR and --to-shape L,G");
    } else if (!c.to_model && !c.to_shape && !c.scan) {
        rc = cmd_usage("transfer", "wanted a target: --to-model DIR, --to-shape L,G or --scan RUN");
    } else if (!c.out) {
        rc = cmd_usage("transfer", "--out FILE is needed: the table to write");
    } else if (transfer(&c, args.items[0], &rc, &err) != CKVC_OK) {
        rc = cmd_fail("transfer", &err);
    }
    free(args.items);
    return rc;
}
