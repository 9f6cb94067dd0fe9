/* Tables through other containers and back: the same content id; damaged files; the GGUF file by
 * our own reader. What numpy and other programs say of them: tests/python/test_export.py. */
#include "formats/export/export.h"
#include "formats/export/npy.h"
#include "formats/model/gguf.h"
#include "lib/base/bytes.h"
#include "lib/base/files.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/unit.h"

static const char *const golden[] = {"evidence",  "learned",   "learned2",
                                     "mean-pool", "one-layer", "shares"};
#define N_GOLDEN (sizeof golden / sizeof *golden)

static const exchange_format *format_of(const char *name) {
    size_t i = 0;
    while (strcmp(exchange_formats[i].name, name) != 0) { i++; }
    assert_true(i < exchange_n_formats);
    return &exchange_formats[i];
}

static table_file *read_golden(const char *name) {
    ckvc_err err = {0};
    table_file *t = NULL;
    CKVC_AUTO_FREE char *path = ckvc_format("tests/golden/table/%s.ckvt", name);
    if (table_file_read(path, &t, &err) != CKVC_OK) { fail_msg("%s", err.text); }
    return t;
}

static void write_as(const char *format, const char *name, const char *path) {
    ckvc_err err = {0};
    ckvc_buffer note = {0};
    CKVC_AUTO(table_file_free_at) table_file *t = read_golden(name);
    const export_options o = {.force = true};
    if (format_of(format)->write_table(t, &o, path, &note, &err) != CKVC_OK) {
        fail_msg("%s: %s", name, err.text);
    }
    ckvc_buffer_fini(&note);
}

static void test_whole_tables_come_back(void **state) {
    static const char *const formats[] = {"safetensors", "npz"};
    for (size_t i = 0; i < 2 * N_GOLDEN; i++) {
        const char *format = formats[i % 2], *name = golden[i / 2];
        ckvc_err err = {0};
        const import_options o = {0};
        CKVC_AUTO_FREE char *path = ckvc_strdup(in_temp_folder(formats[i % 2]));
        CKVC_AUTO(table_file_free_at) table_file *want = read_golden(name);
        CKVC_AUTO(table_file_free_at) table_file *got = NULL;
        write_as(format, name, path);
        if (format_of(format)->read(path, &o, &got, &err) != CKVC_OK) { fail_msg("%s", err.text); }
        assert_string_equal(got->content_id, want->content_id);
        /* what does not count in the content id, but for pROV, which stays at home */
        assert_true(!got->signature == !want->signature &&
                    !got->share_interval == !want->share_interval);
        assert_null(got->prov);
        assert_int_equal(json_equal(got->xfer, want->xfer), want->xfer != NULL);
    }
}

/* Reads bytes as a format's file: refused in one line, or read. */
static bool reads(const char *format, const char *file, const char *path, const void *bytes,
                  size_t n) {
    ckvc_err err = {0};
    const import_options o = {0};
    CKVC_AUTO(table_file_free_at) table_file *t = NULL;
    remove(file); /* a file that is cut short and written again is waited for by some disks */
    write_bytes(file, bytes, n);
    const ckvc_status st = format_of(format)->read(path, &o, &t, &err);
    assert_true(st != CKVC_E_BUG && err.status == st);
    assert_true(st == CKVC_OK ? t != NULL : *err.text && !strchr(err.text, '\n'));
    return st == CKVC_OK;
}

/* Every length, and every byte changed; `file` is in the folder `path`, or is it. Returns how many
 * of the changed ones were read all the same. */
static size_t damage(const char *format, const char *file, const char *path) {
    ckvc_err err = {0};
    CKVC_AUTO_FREE char *bytes = NULL;
    size_t n, accepted = 0;
    assert_int_equal(ckvc_file_read(file, 1 << 20, &bytes, &n, &err), CKVC_OK);
    for (size_t cut = 0; cut < n; cut++) { assert_false(reads(format, file, path, bytes, cut)); }
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (char)(bytes[i] ^ 0x15);
        accepted += reads(format, file, path, bytes, n);
        bytes[i] = (char)(bytes[i] ^ 0x15);
    }
    assert_true(reads(format, file, path, bytes, n));
    return accepted;
}

static void test_damaged_files_are_refused(void **state) {
    CKVC_AUTO_FREE char *npz = ckvc_strdup(in_temp_folder("t.npz"));
    CKVC_AUTO_FREE char *folder = ckvc_strdup(in_temp_folder("t"));
    CKVC_AUTO_FREE char *inside = ckvc_path_join(folder, "model.safetensors");
    write_as("npz", "one-layer", npz);
    write_as("safetensors", "one-layer", folder);
    /* zip keeps versions, times, attributes and names twice, which nobody reads; all numbers are
     * under its sums. safetensors has none: a number that changed to another good one is one. */
    assert_in_range(damage("npz", npz, npz), 1, 600);
    assert_in_range(damage("safetensors", inside, folder), 1, 600);
}

static void test_gguf_by_our_reader(void **state) {
    for (size_t i = 0; i < N_GOLDEN; i++) {
        ckvc_err err = {0};
        const gguf_value *v = NULL;
        CKVC_AUTO_FREE char *path = ckvc_strdup(in_temp_folder("t.gguf"));
        CKVC_AUTO(table_file_free_at) table_file *t = read_golden(golden[i]);
        const ckvc_table *c = t->table;
        CKVC_AUTO(gguf_close_at) gguf *g = NULL;
        write_as("gguf", golden[i], path);
        if (gguf_open(path, &g, &err) != CKVC_OK) { fail_msg("%s", err.text); }
        assert_int_equal(gguf_string(g, "ckvc.content_id", &v, &err), CKVC_OK);
        assert_true(gguf_string_is(v, t->content_id));
        const tensor_view *w = gguf_find_tensor(g, "ckvc.weight");
        assert_true(w && w->rank == 3 && w->dims[0] == c->n_layers && w->dims[1] == c->n_heads &&
                    w->dims[2] == c->n_budgets);
        assert_memory_equal(w->data, c->weight, w->bytes);
        assert_int_equal(gguf_array(g, "ckvc.budget", GGUF_F64, &v, &err), CKVC_OK);
        assert_int_equal(v->n, c->n_budgets);
        for (uint32_t b = 0; b < c->n_budgets; b++) {
            assert_true(ckvc_get_f64(v->data + 8 * b) == c->budgets[b]);
        }
        assert_int_equal(gguf_array(g, "ckvc.share", GGUF_F64, &v, &err), CKVC_OK);
        assert_int_equal(v != NULL, c->share != NULL);
        assert_true(!gguf_find_tensor(g, "ckvc.theta") == !c->theta);
        assert_null(gguf_find(g, "ckvc.qhead"));
    }
}

static void test_npy_headers(void **state) {
    static const struct {
        const char *header, *words; /* NULL: it is read */
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }", NULL},
        {"{'shape': (2,), 'fortran_order': False, 'descr': '<f4'}", NULL},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (2,), }", "row-major"},
        {"{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", "type"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", "type"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", "8 bytes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (), }", "8 bytes"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", "header"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,2), }", "header"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296), }",
         "8 bytes"},
        {"{'descr': '<f4', 'fortran_order': False, }", "header"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'x': 1}", "header"},
        {"", "header"},
        {"{", "header"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckvc_err err = {0};
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer b = {0};
        table_array a = {0};
        ckvc_buffer_append(&b, "\x93NUMPY\1\0", 8);
        ckvc_buffer_u16(&b, (uint16_t)strlen(cases[i].header));
        ckvc_buffer_text(&b, cases[i].header);
        ckvc_buffer_u64(&b, 0);
        const ckvc_status st = npy_parse("x.npy", b.data, b.size, &a, &err);
        assert_int_equal(st, cases[i].words ? CKVC_E_DATA : CKVC_OK);
        if (cases[i].words && !strstr(err.text, cases[i].words)) {
            fail_msg("%s: %s", cases[i].header, err.text);
        }
    }
}

static void test_every_format_goes_somewhere(void **state) {
    for (size_t i = 0; i < exchange_n_formats; i++) {
        const exchange_format *f = &exchange_formats[i];
        assert_true(!f->write_table != !f->write_run && !f->read != !f->why_not);
        assert_non_null(strstr(EXPORT_NAMES, f->name));
        assert_true(!strstr(IMPORT_NAMES, f->name) == !f->read);
    }
}

/* What keeps other sets there than here does not go out. */
static void test_compilerkv_has_one_rule(void **state) {
    for (uint32_t keep = 0; keep < 2; keep++) {
        ckvc_err err = {0};
        CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer note = {0};
        CKVC_AUTO(table_file_free_at) table_file *t = read_golden("one-layer");
        const export_options o = {.force = true, .length = 1000};
        const char *path = in_temp_folder("compilerkv");
        const exchange_format *f = format_of("compilerkv");
        assert_int_equal(f->write_table(t, &o, path, &note, &err), CKVC_OK);
        t->table->visible = !keep;
        t->table->keep_window = keep;
        assert_int_equal(f->write_table(t, &o, path, &note, &err), CKVC_E_MISMATCH);
        assert_non_null(strstr(err.text, keep ? "the last 1 positions" : "alpha visible"));
    }
}

/* A small file may say that one KV head has 65535 query heads. */
static void test_no_more_rows_than_a_model_has(void **state) {
    static const char *const formats[] = {"compilerkv", "headkv"};
    for (int i = 0; i < 2; i++) {
        ckvc_err err = {0};
        ckvc_buffer note = {0};
        CKVC_AUTO(table_file_free_at) table_file *t = read_golden("one-layer");
        const export_options o = {.force = true, .length = 1000};
        const uint32_t n_layers = t->table->n_layers;
        t->table->n_layers = t->table->n_query_heads = CKVC_TABLE_MAX_EXTENT;
        assert_int_equal(
            format_of(formats[i])->write_table(t, &o, in_temp_folder("rows"), &note, &err),
            CKVC_E_DATA);
        assert_non_null(strstr(err.text, "65535 layers of 65535 query heads"));
        t->table->n_layers = n_layers;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_tables_come_back),
        cmocka_unit_test(test_damaged_files_are_refused),
        cmocka_unit_test(test_gguf_by_our_reader),
        cmocka_unit_test(test_npy_headers),
        cmocka_unit_test(test_every_format_goes_somewhere),
        cmocka_unit_test(test_compilerkv_has_one_rule),
        cmocka_unit_test(test_no_more_rows_than_a_model_has),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_remove);
}
