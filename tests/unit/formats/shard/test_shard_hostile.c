/* Foreign shards: bent through HDF5's own interface, and thousands damaged; read in a child. */
#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <zstd.h>

#include "formats/shard/h5_zstd.h"
#include "tests/unit/formats/refusal.h"
#include "tests/unit/shard_fixture.h"
#include "tests/unit/temp_folder.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif

static const char *good_path, *bent_path;
static char *good_bytes;
static size_t good_size;
static shard *good;

static int setup(void **state) {
    if (temp_folder_make(state) != 0) { return -1; }
    good_path = in_temp_folder("good.h5");
    bent_path = in_temp_folder("bent.h5");
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    good = fixture_shard("both", 3, 20);
    write_shard(good, good_path);
    good_bytes = file_bytes(good_path, &good_size);
    return 0;
}

static int teardown(void **state) {
    shard_free(good), free(good_bytes);
    return temp_folder_remove(state);
}

/* A fresh copy of the good file, open for bending. */
static hid_t bend(void) {
    write_bytes(bent_path, good_bytes, good_size);
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
    hid_t file = H5Fopen(bent_path, H5F_ACC_RDWR, access);
    H5Pclose(access);
    assert_true(file >= 0);
    return file;
}

static ckvc_status read_within(const void *bytes, size_t n, unsigned cpu_s, unsigned wall_s,
                               shard **out) {
    const shard_bytes file = {bent_path, bytes, n, true};
    err = (ckvc_err){0};
    return shard_h5_read_bytes(&file, cpu_s, wall_s, out, &err);
}

static void expect_refused_at(const char *path, const char *word) {
    shard *s = NULL;
    SAYS(shard_h5_read(path, true, &s, &err), CKVC_E_DATA, word);
    assert_null(s);
}

static void expect_refused(hid_t file, const char *word) {
    H5Fclose(file);
    expect_refused_at(bent_path, word);
}

static shard *expect_taken(hid_t file) {
    shard *s;
    H5Fclose(file);
    OK(shard_h5_read(bent_path, true, &s, &err));
    return s;
}

static hid_t bend_without(const char *name) {
    hid_t file = bend();
    H5Ldelete(file, name, H5P_DEFAULT);
    return file;
}

/* Replaces a 1-D dataset; create: its creation list (H5P_DEFAULT: contiguous). */
static void replace(hid_t file, const char *name, hid_t type, hsize_t rows, hid_t create,
                    const void *values) {
    assert_true(H5Ldelete(file, name, H5P_DEFAULT) >= 0);
    hsize_t most = H5S_UNLIMITED;
    bool grows = create != H5P_DEFAULT && H5Pget_layout(create) == H5D_CHUNKED;
    hid_t space = H5Screate_simple(1, &rows, grows ? &most : NULL);
    hid_t d = H5Dcreate2(file, name, type, space, H5P_DEFAULT, create, H5P_DEFAULT);
    assert_true(d >= 0);
    if (values) { assert_true(H5Dwrite(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0); }
    H5Dclose(d), H5Sclose(space);
}

/* The good file with one column replaced; the creation list is closed. */
static void refuse_column(const char *name, hid_t type, hsize_t rows, hid_t create,
                          const void *values, const char *word) {
    hid_t f = bend();
    replace(f, name, type, rows, create, values);
    if (create != H5P_DEFAULT) { H5Pclose(create); }
    expect_refused(f, word);
}
static void refuse_reward(hid_t create, const double *values, const char *word) {
    refuse_column("record/reward", H5T_IEEE_F64LE, 60, create, values, word);
}

static hid_t chunked(hsize_t rows) {
    hid_t create = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(create, 1, &rows);
    return create;
}

TEST(links) {
    hid_t f = bend_without("record/reward");
    H5Lcreate_external(good_path, "record/reward", f, "record/reward", H5P_DEFAULT, H5P_DEFAULT);
    expect_refused(f, "external link");
    f = bend_without("record/reward");
    H5Lcreate_soft("/record/loss", f, "record/reward", H5P_DEFAULT, H5P_DEFAULT);
    expect_refused(f, "soft link");
    f = bend_without("record");
    H5Lcreate_external(good_path, "record", f, "record", H5P_DEFAULT, H5P_DEFAULT);
    expect_refused(f, "external link");
    f = bend(); /* nobody asked for it, and still */
    H5Lcreate_external("/etc/passwd", "x", f, "extra", H5P_DEFAULT, H5P_DEFAULT);
    expect_refused(f, "external link");
}

TEST(storage) {
    const double values[60] = {0};
    hid_t create = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(create, "/etc/passwd", 0, 480);
    refuse_reward(create, NULL, "external storage");

    /* A virtual dataset whose source is a FIFO: opening it would wait for ever. */
    const char *fifo = in_temp_folder("fifo");
    assert_int_equal(mkfifo(fifo, 0600), 0);
    hsize_t rows = 60;
    create = H5Pcreate(H5P_DATASET_CREATE);
    hid_t space = H5Screate_simple(1, &rows, NULL);
    H5Pset_virtual(create, space, fifo, "record/reward", space);
    H5Sclose(space);
    refuse_reward(create, NULL, "virtual");

    create = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_layout(create, H5D_COMPACT);
    refuse_reward(create, values, "compact");
    refuse_reward(chunked((hsize_t)1 << 24), NULL, "chunks over 64 MiB");
    create = chunked(60);
    H5Pset_nbit(create);
    refuse_reward(create, values, "uses filter 5");
    create = chunked(60);
    const unsigned level = 3;
    H5Pset_filter(create, 32004, H5Z_FLAG_OPTIONAL, 1, &level);
    refuse_reward(create, NULL, "uses filter 32004");
    create = chunked(60);
    H5Pset_deflate(create, 6);
    H5Pset_filter(create, H5_ZSTD_ID, H5Z_FLAG_MANDATORY, 1, &level);
    refuse_reward(create, values, "more than once");
}

/* Frames that unfold to another size than their chunk: HDF5 itself does not look. */
TEST(zstd_frames) {
    static const size_t sizes[] = {8, 479, 481, 100 << 20};
    for (size_t i = 0; i < 4; i++) {
        hid_t f = bend(), create = chunked(60);
        hsize_t at = 0;
        const unsigned level = 3;
        H5Pset_filter(create, H5_ZSTD_ID, H5Z_FLAG_MANDATORY, 1, &level);
        replace(f, "record/reward", H5T_IEEE_F64LE, 60, create, NULL);
        size_t bound = ZSTD_compressBound(sizes[i]);
        char *raw = calloc(1, sizes[i]), *frame = malloc(bound);
        size_t n = ZSTD_compress(frame, bound, raw, sizes[i], 3);
        hid_t d = H5Dopen2(f, "record/reward", H5P_DEFAULT);
        assert_true(H5Dwrite_chunk(d, H5P_DEFAULT, 0, &at, n, frame) >= 0);
        H5Dclose(d), H5Pclose(create), free(raw), free(frame);
        expect_refused(f, "record/reward cannot be read");
    }
}

TEST(shapes_and_values) {
    double values[120];
    for (int i = 0; i < 120; i++) { values[i] = 0.5; }
    refuse_column("record/reward", H5T_IEEE_F64LE, 59, H5P_DEFAULT, values, "other columns");
    hid_t f = bend_without("record/reward");
    hsize_t two[2] = {60, 2};
    hid_t space = H5Screate_simple(2, two, NULL);
    H5Dclose(H5Dcreate2(f, "record/reward", H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT,
                        H5P_DEFAULT));
    H5Sclose(space);
    expect_refused(f, "dimensions");
    values[7] = NAN;
    refuse_reward(H5P_DEFAULT, values, "record/reward, row 7, is nan");
    /* a column of 2^40 rows that takes no room in the file */
    refuse_column("record/prompt", H5T_STD_U32LE, (hsize_t)1 << 40, chunked(1024), NULL,
                  "rows, at most");
    static const struct {
        int64_t layer;
        const char *word;
    } layers[] = {{-1, "record/layer, value 9, is -1"},
                  {65536 + 1, "record/layer, value 9, is 65537"}, /* 1 if it were cut to 16 bits */
                  {2, "record/layer, row 9, is 2"}};
    for (int i = 0; i < 3; i++) {
        const int64_t indices[60] = {[9] = layers[i].layer};
        refuse_column("record/layer", H5T_NATIVE_INT64, 60, H5P_DEFAULT, indices, layers[i].word);
    }
    values[7] = 0;
    refuse_column("record/layer", H5T_IEEE_F64LE, 60, H5P_DEFAULT, values, "no integers");
    refuse_column("prompt/id", H5T_IEEE_F64LE, 3, H5P_DEFAULT, values, "no text");
    hid_t text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, 8);
    H5Tset_strpad(text, H5T_STR_NULLPAD);
    const char ids[3][8] = {"a\0b", "c", "d"}; /* two texts in one field */
    refuse_column("prompt/id", text, 3, H5P_DEFAULT, ids, "behind a NUL");
    H5Tset_size(text, 300);
    refuse_column("prompt/id", text, 3, H5P_DEFAULT, NULL, "300 bytes");
    H5Tclose(text);
}

TEST(missing) {
    for (int k = 0; k < shard_n_groups(&good->h); k++) {
        for (size_t i = 0; i < shard_groups[k].n_columns; i++) {
            const shard_column *c = &shard_groups[k].columns[i];
            char name[64];
            if (!shard_has_column(c, &good->h)) { continue; }
            snprintf(name, sizeof name, "%s/%s", shard_groups[k].name, c->m.name);
            hid_t f = bend_without(name);
            if (c->need == SHARD_OF_ALL) {
                expect_refused(f, name);
            } else {
                CKVC_AUTO(shard_free_at) shard *s = expect_taken(f);
                assert_int_equal(s->n_records, good->n_records);
            }
        }
    }
    static const char *const attributes[] = {"format",   "version",  "plan",   "fingerprint",
                                             "n_layers", "pass",     "lambda", "seed",
                                             "budgets",  "start_tau"};
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        hid_t f = bend();
        H5Adelete(f, attributes[i]);
        expect_refused(f, attributes[i]);
    }
    hid_t f = bend();
    H5Adelete(f, "keep_window");
    CKVC_AUTO(shard_free_at) shard *s = expect_taken(f);
    assert_int_equal(s->h.setting.keep_window, 0);
    /* The row widths follow n_layers, so a wrong one is seen at the start tables. */
    f = bend();
    hid_t a = H5Aopen(f, "n_layers", H5P_DEFAULT);
    uint32_t three = 3;
    H5Awrite(a, H5T_NATIVE_UINT32, &three);
    H5Aclose(a);
    expect_refused(f, "start_weight");
}

/* What others may write by formats.md: other types, deflate, no optional column. */
TEST(other_producers) {
    hid_t f = bend();
    static const char *const optional[] = {
        "prompt/source",      "prompt/split",          "prompt/line",   "prompt/n_tokens",
        "prompt/token_hash",  "prompt/r_struct",       "record/n_kept", "record/set_hash",
        "baseline/n_kept",    "baseline/n_candidates", "prompt/cut",    "baseline/n_candidates_lo",
        "record/n_candidates"};
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++) {
        H5Ldelete(f, optional[i], H5P_DEFAULT);
    }
    int64_t layers[60];
    float rewards[60];
    for (size_t i = 0; i < 60; i++) {
        layers[i] = good->records[i].layer;
        rewards[i] = (float)good->records[i].reward;
    }
    hid_t create = chunked(7);
    H5Pset_shuffle(create);
    H5Pset_deflate(create, 4);
    H5Pset_fletcher32(create);
    replace(f, "record/layer", H5T_NATIVE_INT64, 60, create, layers);
    replace(f, "record/reward", H5T_NATIVE_FLOAT, 60, H5P_DEFAULT, rewards);
    H5Pclose(create);
    hid_t text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, H5T_VARIABLE);
    H5Tset_cset(text, H5T_CSET_UTF8);
    const char *ids[3] = {"one", "two", "thr\xc3\xa9\x65"};
    replace(f, "prompt/id", text, 3, H5P_DEFAULT, ids);
    H5Adelete(f, "model_name");
    hid_t scalar = H5Screate(H5S_SCALAR),
          a = H5Acreate2(f, "model_name", text, scalar, H5P_DEFAULT, H5P_DEFAULT);
    const char *name = "somebody's";
    H5Awrite(a, text, &name);
    H5Aclose(a), H5Sclose(scalar), H5Tclose(text);
    CKVC_AUTO(shard_free_at) shard *s = expect_taken(f);
    assert_string_equal(s->h.model_name, "somebody's");
    assert_string_equal(s->prompts[2].id, "thr\xc3\xa9\x65");
    assert_true(s->prompts[2].n_tokens == 0 && s->n_kept[0] == 0 && s->n_kept_window[0] == 8);
    for (size_t i = 0; i < 60; i++) {
        assert_true(s->records[i].reward == (double)rewards[i]);
        assert_int_equal(s->records[i].layer, good->records[i].layer);
    }
}

static void refuse_bytes(const void *bytes, size_t n, const char *word) {
    write_bytes(bent_path, bytes, n);
    expect_refused_at(bent_path, word);
}

TEST(not_a_shard) {
    char zeros[100] = "\x89HDF\r\n\x1a\n";
    refuse_bytes("", 0, "not an HDF5 file");
    refuse_bytes(zeros, sizeof zeros, "superblock version 0");
    zeros[8] = 2;
    refuse_bytes(zeros, sizeof zeros, "not a readable HDF5 file");
    hid_t f = H5Fcreate(bent_path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    expect_refused(f, "superblock version 0");
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
    f = H5Fcreate(bent_path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    H5Pclose(access);
    expect_refused(f, "attribute format is missing");
    shard *s;
    FAILS(shard_h5_read("/nowhere/x.h5", true, &s, &err), CKVC_E_NOINPUT);
    FAILS(shard_h5_read(temp_folder, true, &s, &err), CKVC_E_NOINPUT);
}

/* ---- HDF5 taken over: the zstd filter of this process is the attacker, the child's a copy ---- */
#ifdef CKVC_UNCONFINED
TEST(taken_over) { skip(); }
#else
enum { TRIES = 12, NOT_TRIED = 1000 };
static int aim; /* what the filter does: TRIES and then values; or what a limit ends */
enum { AIM_TRY, AIM_MEMORY, AIM_CPU };
static const char *new_path;

/* 0: it was done; else errno. */
static int errno_of(long result) { return result < 0 ? errno : 0; }

/* Ways out of the child, each with its errno; the last is to write to a file that the parent has
 * open, which is EBADF where it is closed here. */
static void try_all(double *got) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    char byte = 0;
    int n = 0, written = 0;
    got[n++] = errno_of(socket(AF_INET, SOCK_STREAM, 0));
    got[n++] = errno_of(connect(3, (struct sockaddr *)&to, sizeof to));
    got[n++] = errno_of(open(new_path, O_WRONLY | O_CREAT, 0600));
    got[n++] = errno_of(open("/etc/passwd", O_RDONLY));
    got[n++] = errno_of(execl("/bin/true", "true", NULL));
    got[n++] = errno_of(fork());
    got[n++] = errno_of(kill(getppid(), 0));
    got[n++] = errno_of(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
    got[n++] = errno_of(unlink(good_path));
    got[n++] = errno_of(read(0, &byte, 1));
    void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    got[n++] = code == MAP_FAILED ? errno : 0;
    for (int fd = 4; fd < 64; fd++) { written += write(fd, &byte, 1) == 1; }
    got[n++] = written ? 0 : EPERM;
}

static size_t attack(unsigned flags, size_t cd_nelmts, const unsigned cd_values[], size_t nbytes,
                     size_t *buf_size, void **buf) {
    double first;
    memcpy(&first, *buf, sizeof first);
    if (first != NOT_TRIED) { /* another column */
        return h5_zstd_class.filter(flags, cd_nelmts, cd_values, nbytes, buf_size, buf);
    }
    if (!(flags & H5Z_FLAG_REVERSE)) { return nbytes; }
    for (int i = 0; aim == AIM_MEMORY && i < 8; i++) { /* 8 GiB of addresses, never touched */
        const int how = MAP_PRIVATE | MAP_ANONYMOUS;
        if (mmap(NULL, (size_t)1 << 30, PROT_READ | PROT_WRITE, how, -1, 0) == MAP_FAILED) {
            return i > 2 ? 0 : nbytes;
        }
    }
    for (volatile int spin = 1; aim == AIM_CPU && spin;) {}
    try_all(*buf);
    return nbytes;
}

TEST(taken_over) {
    static const H5Z_class2_t attacker = {H5Z_CLASS_T_VERS, H5_ZSTD_ID, 1,    1,
                                          "zstd",           NULL,       NULL, attack};
    double values[60];
    for (int i = 0; i < 60; i++) { values[i] = NOT_TRIED; }
    new_path = in_temp_folder("new");
    assert_true(H5Zregister(&attacker) >= 0);
    hid_t f = bend(), create = chunked(60);
    H5Pset_filter(create, H5_ZSTD_ID, H5Z_FLAG_MANDATORY, 0, NULL);
    replace(f, "record/loss", H5T_IEEE_F64LE, 60, create, values);
    H5Pclose(create), H5Fclose(f);

    const int parents = open("/dev/null", O_WRONLY);
    shard *s = NULL;
    aim = AIM_TRY;
    size_t n;
    CKVC_AUTO_FREE char *bytes = file_bytes(bent_path, &n);
    OK(read_within(bytes, n, 5, 10, &s));
    for (int i = 0; i < TRIES; i++) {
        if (s->records[i].loss != EPERM) { fail_msg("try %d: errno %g", i, s->records[i].loss); }
    }
    assert_true(s->records[TRIES].loss == NOT_TRIED);
    assert_int_not_equal(access(new_path, F_OK), 0);
    assert_int_equal(access(good_path, F_OK), 0);
    shard_free(s);
    close(parents);
#ifndef SANITIZED
    aim = AIM_MEMORY;
    expect_refused_at(bent_path, "record/loss cannot be read");
#endif
    aim = AIM_CPU;
    SAYS(read_within(bytes, n, 1, 200, &s), CKVC_E_DATA, "over its CPU time");
    H5Zunregister(H5_ZSTD_ID);
}
#endif

/* No filter that lies about as a library. */
TEST(no_plugins) {
    unsigned kinds = ~0u;
    OK(h5_begin(NULL));
    assert_true(H5PLget_loading_state(&kinds) >= 0 && kinds == 0);
}

TEST(deadline) {
    shard *s;
    SAYS(read_within(good_bytes, good_size, 10, 0, &s), CKVC_E_DATA, "did not finish");
}

#ifdef SANITIZED
enum { ROUNDS = 150, SEALED_ROUNDS = 150 };
#else
enum { ROUNDS = 800, SEALED_ROUNDS = 500 };
#endif

/* The good file with what `damage` does to it, which returns how much stays: an error, or rows that
 * pass every check; with `same`, exactly those that were written. */
static void damaged(int rounds, uint64_t seed, bool same,
                    size_t (*damage)(char *, ckvc_rng *, int)) {
    ckvc_rng rng = rng_of(seed, 0, 0);
    CKVC_AUTO_FREE char *copy = malloc(good_size);
    int taken = 0, crashed = 0;
    for (int i = 0; i < rounds; i++) {
        memcpy(copy, good_bytes, good_size);
        const size_t n = damage(copy, &rng, i);
        CKVC_AUTO(shard_free_at) shard *s = NULL;
        const ckvc_status st = read_within(copy, n, 5, 10, &s);
        taken += st == CKVC_OK;
        crashed += strstr(err.text, "ended early") != NULL;
        if (st == CKVC_OK) {
            assert_true(!same || fixture_same(s, good));
        } else {
            assert_int_equal(st, CKVC_E_DATA);
            assert_true(strlen(err.text) > strlen(bent_path));
        }
    }
    print_message("%d damaged files: %d taken, %d ended the child\n", rounds, taken, crashed);
}

/* 1 to 8 bytes changed, or the end cut off. Metadata and chunks both carry checksums in this
 * layout, so nothing may come back silently different. */
static size_t change_bytes(char *copy, ckvc_rng *rng, int i) {
    if (i % 16 == 15) { return ckvc_rng_below(rng, good_size); }
    for (uint64_t k = 1 + ckvc_rng_below(rng, 8); k > 0; k--) {
        char *at = copy + ckvc_rng_below(rng, i % 2 ? good_size : 4096);
        *at = (char)(ckvc_rng_below(rng, 2) ? ckvc_rng_u32(rng)
                                            : (uint32_t)*at ^ 1u << ckvc_rng_below(rng, 8));
    }
    return good_size;
}
TEST(random_damage) { damaged(ROUNDS, 11, true, change_bytes); }

/* The same behind right checksums, as a crafted file has. HDF5's own, in none of its headers. */
uint32_t H5_checksum_metadata(const void *data, size_t n, uint32_t start);

/* A piece of metadata: from its signature to the checksum behind it. */
typedef struct sealed {
    size_t from, sum;
} sealed;

static sealed all_sealed[256];
static size_t n_sealed;

static void find_sealed(void) {
    static const char *const signatures[] = {"\x89HDF", "OHDR", "OCHK", "FRHP", "FHDB", "FHIB",
                                             "BTHD",    "BTLF", "BTIN", "FAHD", "FADB", "EAHD"};
    const char *bytes = good_bytes;
    const size_t n = good_size;
    for (size_t from = 0; from + 8 < n && n_sealed < 256; from++) {
        bool begins = false;
        for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++) {
            begins |= memcmp(bytes + from, signatures[i], 4) == 0;
        }
        for (size_t sum = from + 8; begins && sum + 4 <= n && sum < from + 2048; sum++) {
            const uint32_t is = H5_checksum_metadata(bytes + from, sum - from, 0);
            if (memcmp(&is, bytes + sum, 4) == 0) {
                all_sealed[n_sealed++] = (sealed){from, sum};
                break;
            }
        }
    }
}

/* Metadata that says something else. */
static size_t change_sealed(char *copy, ckvc_rng *rng, int i) {
    const sealed *s = &all_sealed[ckvc_rng_below(rng, n_sealed)];
    for (uint64_t k = 1 + ckvc_rng_below(rng, 3); k > 0; k--) {
        copy[s->from + 4 + ckvc_rng_below(rng, s->sum - s->from - 4)] = (char)ckvc_rng_u32(rng);
    }
    const uint32_t sum = H5_checksum_metadata(copy + s->from, s->sum - s->from, 0);
    memcpy(copy + s->sum, &sum, 4);
    return good_size;
}
TEST(sealed_damage) {
    find_sealed();
    assert_true(n_sealed > 40);
    damaged(SEALED_ROUNDS, 12, false, change_sealed);
}

RUN_TESTS(setup, teardown)
