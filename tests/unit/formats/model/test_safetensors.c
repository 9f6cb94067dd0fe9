/* The safetensors reader: what a sound file gives, and one malformed file a rule. */
#include "formats/model/model_readers.h"
#include "tests/unit/formats/refusal.h"
#include "tests/unit/temp_folder.h"

/* A file of the header text and n_data bytes 0, 1, 2 ... */
static void put_tensors(const char *name, const char *header, size_t n_data) {
    uint8_t bytes[4096];
    const size_t n = strlen(header);
    assert_true(8 + n + n_data <= sizeof bytes);
    ckvc_put_u64(bytes, n);
    memcpy(bytes + 8, json_of(header), n);
    for (size_t i = 0; i < n_data; i++) { bytes[8 + n + i] = (uint8_t)i; }
    write_bytes(in_temp_folder(name), bytes, 8 + n + n_data);
}

static model_spec *w; /* what was read last, or NULL */

static ckvc_status read_dir(void) {
    CKVC_AUTO(model_spec_free_at) model_spec *spec = model_spec_create(temp_folder);
    model_spec_free(ckvc_take(&w));
    CKVC_TRY(safetensors_read(temp_folder, spec, &err));
    w = ckvc_take(&spec);
    return CKVC_OK;
}

static void refused(const char *word) {
    REFUSES(read_dir(), temp_folder, word);
    assert_null(w);
}

TEST(sound_file) {
    /* padded with spaces, names in no order, a scalar, an empty tensor, a type not computed with */
    put_tensors("model.safetensors",
                "{'__metadata__':{'format':'pt'},'b':{'dtype':'BF16','shape':[2,3],"
                "'data_offsets':[4,16]},'a.scalar':{'dtype':'F32','shape':[],'data_offsets':[0,4]},"
                "'B':{'dtype':'F32','shape':[0,5],'data_offsets':[16,16]},'ids':{'dtype':'I64',"
                "'shape':[1],'data_offsets':[16,24]}}   ",
                24);
    OK(read_dir());
    assert_int_equal(w->n_tensors, 4);
    const char *const names[] = {"B", "a.scalar", "b", "ids"};
    for (size_t i = 0; i < 4; i++) { assert_string_equal(w->tensors[i].name, names[i]); }
    const tensor_view *b = model_spec_find(w, "b"), *ids = model_spec_find(w, "ids"),
                      *empty = model_spec_find(w, "B");
    assert_true(b->type == TENSOR_BF16 && b->rank == 2 && b->dims[0] == 2 && b->dims[1] == 3 &&
                b->bytes == 12 && b->data[0] == 4);
    assert_true(ids->type == TENSOR_OTHER && strcmp(ids->dtype, "I64") == 0 && ids->bytes == 8 &&
                ids->data[0] == 16);
    assert_true(empty->bytes == 0 && model_spec_find(w, "a.scalar")->rank == 0);
    assert_null(model_spec_find(w, "missing"));
    put_tensors("model.safetensors", "{}", 0); /* no tensors at all is a file of the format */
    OK(read_dir());
    assert_null(model_spec_find(w, "b"));
    model_spec_free(NULL);
}

#define T(dtype, shape, offsets)                                                                   \
    "'t':{'dtype':'" dtype "','shape':" shape ",'data_offsets':" offsets "}"

TEST(malformed_headers) {
    static const struct {
        const char *header, *word;
        size_t n_data;
    } cases[] = {
        {"[]", "JSON object", 0},
        {" {}", "JSON object", 0},
        {"{", "JSON object", 0},
        {"{ ", "not valid JSON", 0},
        {"{}x", "not valid JSON", 0},
        {"{'t':5}", "not an object", 0},
        {"{'t':{'dtype':'F32','shape':[1]}}", "data_offsets", 4},
        {"{'t':{'dtype':'F32','shape':[1],'data_offsets':[0,4],'x':1}}", "unknown key \"x\"", 4},
        {"{" T("F32", "[1]", "[0,4,8]") "}", "data_offsets", 4},
        {"{" T("f32", "[1]", "[0,4]") "}", "dtype \"f32\"", 4},
        {"{" T("F32", "[1.0]", "[0,4]") "}", "shape[0]", 4},
        {"{" T("F32", "[-1]", "[0,4]") "}", "shape[0]", 4},
        {"{" T("F32", "[1,1,1,1,1,1]", "[0,4]") "}", "rank 6", 4},
        {"{" T("F32", "[281474976710657]", "[0,4]") "}", "shape[0]", 4},
        {"{" T("F32", "[4294967296,4294967296]", "[0,4]") "}", "overflows", 4},
        {"{" T("F32", "[2147483648,2147483648]", "[0,4]") "}", "overflows", 4},
        {"{" T("F4", "[3]", "[0,2]") "}", "whole number of bytes", 2},
        {"{" T("F32", "[1]", "[0,4.0]") "}", "not integers", 4},
        {"{" T("F32", "[1]", "[-4,0]") "}", "not integers", 4},
        {"{" T("F32", "[1]", "[4,0]") "}", "outside the file", 4},
        {"{" T("F32", "[1]", "[0,8]") "}", "outside the file", 4},
        {"{" T("F32", "[2]", "[0,4]") "}", "hold 4 bytes but F32 [2] needs 8", 4},
        {"{" T("BF16", "[64,65]", "[0,4]") "}", "hold 4 bytes but BF16 [64,65] needs 8320", 4},
        {"{" T("F32", "[1]", "[4,8]") "}", "belong to no tensor", 8},
        {"{" T("F32", "[1]", "[0,4]") "}", "end at byte 4", 5},
        {"{}", "end at byte 0", 1},
        {"{'__metadata__':[]}", "__metadata__", 0},
        {"{'__metadata__':{'a':1}}", "__metadata__[\"a\"]", 0},
        {"{" T("F32", "[1]", "[0,4]") ",'u':{'dtype':'F32','shape':[1],'data_offsets':[2,6]}}",
         "overlaps \"t\"", 6},
        {"{" T("F32", "[1]", "[0,4]") ",'u':{'dtype':'F32','shape':[1],'data_offsets':[0,4]}}",
         "overlaps", 4},
        {"{" T("F32", "[1]", "[0,4]") "," T("F32", "[1]", "[0,4]") "}", "duplicate", 4},
        {"{'t\xff':{}}", "not valid JSON", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_tensors("model.safetensors", cases[i].header, cases[i].n_data);
        refused(cases[i].word);
    }
}

TEST(malformed_lengths) {
    uint8_t bytes[64] = {0};
    for (size_t n = 0; n < 8; n++) {
        write_bytes(in_temp_folder("model.safetensors"), bytes, n);
        refused(n ? "too few" : "an empty file");
    }
    write_bytes(in_temp_folder("model.safetensors"), bytes, 8); /* header of 0 bytes */
    refused("JSON object");
    static const struct {
        uint64_t length;
        const char *word;
    } cases[] = {{57, "past the end"},
                 {100000000, "past the end"},
                 {100000001, "limit"},
                 {UINT64_C(1) << 63, "limit"},
                 {UINT64_MAX, "limit"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ckvc_put_u64(bytes, cases[i].length);
        bytes[8] = '{';
        write_bytes(in_temp_folder("model.safetensors"), bytes, sizeof bytes);
        refused(cases[i].word);
    }
}

static int n_warnings;
static void count_warning(const char *line) { n_warnings++; }

static void put_index(const char *text) { put_text("model.safetensors.index.json", json_of(text)); }
static void refused_index(const char *text, const char *word) {
    put_index(text);
    refused(word);
}

TEST(several_files) {
    shell("rm -f %s/*.safetensors", temp_folder);
    FAILS(read_dir(), CKVC_E_NOINPUT);
    put_tensors("one.safetensors", "{" T("F32", "[1]", "[0,4]") "}", 4);
    put_tensors("two.safetensors", "{'u':{'dtype':'F16','shape':[2],'data_offsets':[0,4]}}", 4);
    ckvc_warn_set(count_warning);
    for (int more = 0; more < 2; more++) { /* bytes that are not there: a warning */
        char text[256];
        snprintf(text, sizeof text,
                 "{'metadata':{'total_size':%d},'weight_map':{'u':'two.safetensors','t':'one."
                 "safetensors'}}",
                 8 + more);
        put_index(text);
        OK(read_dir());
        assert_int_equal(w->n_tensors, 2);
        assert_non_null(strstr(model_spec_find(w, "u")->file, "two.safetensors"));
        assert_int_equal(n_warnings, more);
    }
    ckvc_warn_set(NULL);

    put_index("{'weight_map':{'u':'two.safetensors','t':'three.safetensors'}}");
    SAYS(read_dir(), CKVC_E_NOINPUT, "names three.safetensors, which is not in the folder");

    /* the last one as JSON has it */
    static const char *const names[] = {
        "../one.safetensors", "/etc/passwd", "sub/one.safetensors", "..", ".", "", "a\\\\b"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char text[256];
        snprintf(text, sizeof text, "{'weight_map':{'t':'%s'}}", names[i]);
        refused_index(text, "plain names");
    }
    refused_index("{'weight_map':{'t':7}}", "plain names");
    refused_index("{'weight_map':{}}", "weight_map");
    refused_index("[]", "weight_map");
    refused_index("{'weight_map':{'t':'one.safetensors','t':'one.safetensors'}}", "duplicate");
    refused_index("{'weight_map':{'x':'one.safetensors'}}", "not there");
    refused_index("{'weight_map':{'t':'two.safetensors','u':'one.safetensors'}}", "another file");
    put_index("{'weight_map':{'t':'absent.safetensors'}}");
    SAYS(read_dir(), CKVC_E_NOINPUT, "absent.safetensors");
    put_tensors(
        "two.safetensors",
        "{" T("F32", "[1]", "[0,4]") ",'u':{'dtype':'F16','shape':[2],'data_offsets':[4,8]}}", 8);
    refused_index("{'weight_map':{'u':'two.safetensors','t':'one.safetensors'}}", "is in");
    shell("rm %s/*", temp_folder);
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
