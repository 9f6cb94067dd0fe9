/* Base: sizes, cursor, buffer, hashes with published values, the random streams' pinned first
 * values, the pool, atomic publishing, canonical JSON. */
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <sys/syscall.h>
#include <time.h>

#include "lib/base/json.h"
#include "lib/base/bytes.h"
#include "lib/base/files.h"
#include "lib/base/bytes.h"
#include "lib/base/hash.h"
#include "lib/base/memory.h"
#include "lib/base/pool.h"
#include "lib/base/progress.h"
#include "lib/base/sizes.h"
#include "lib/base/utf8.h"
#include "lib/base/text_lines.h"
#include "tests/unit/temp_folder.h"

TEST(sizes) {
    size_t v;
    assert_true(ckvc_mul_size(3, 5, &v));
    assert_int_equal(v, 15);
    assert_false(ckvc_mul_size(SIZE_MAX / 2, 3, &v));
    assert_false(ckvc_add_size(SIZE_MAX, 1, &v));
    assert_true(ckvc_span_ok(4, 6, 10));
    assert_false(ckvc_span_ok(4, 7, 10));
    assert_false(ckvc_span_ok(11, 0, 10));
    assert_false(ckvc_span_ok(2, UINT64_MAX, 10));
}

TEST(cursor) {
    const uint8_t bytes[] = {1, 2, 3, 4, 5, 6};
    ckvc_cursor c = {bytes, sizeof bytes, 0, false};
    assert_int_equal(ckvc_cursor_u32(&c), 0x04030201);
    assert_int_equal(ckvc_cursor_u32(&c), 0); /* two bytes remain */
    assert_true(c.failed);
    assert_int_equal(c.pos, 4);
    assert_int_equal(ckvc_cursor_u16(&c), 0); /* a failed cursor stays failed */
}

TEST(buffer) {
    CKVC_AUTO(ckvc_buffer_fini) ckvc_buffer b = {0};
    ckvc_buffer_printf(&b, "%d-%s", 7, "x");
    ckvc_buffer_u32(&b, 0x11223344);
    ckvc_buffer_u64(&b, 0x3ff0000000000000);
    assert_memory_equal(b.data, "7-x\x44\x33\x22\x11\0\0\0\0\0\0\xf0\x3f", 15);
    assert_int_equal(b.size, 15);
    assert_int_equal(b.data[b.size], 0);
}

/* FIPS 180-2 "abc"; zlib's and xxHash's published check values. */
TEST(hashes) {
    char hex[CKVC_SHA256_HEX];
    ckvc_sha256_hex("abc", 3, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_int_equal(ckvc_crc32(0, "123456789", 9), 0xcbf43926);
    assert_true(ckvc_xxh64("", 0) == 0xef46db3751d8e999ULL);
}

/* Philox4x32-10 with counter and key zero: the known answer of Random123's kat_vectors. */
TEST(rng) {
    ckvc_rng r = rng_of(0, 0, 0);
    static const uint32_t known[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    for (int i = 0; i < 4; i++) { assert_int_equal(ckvc_rng_u32(&r), known[i]); }
    double sum = 0, square = 0;
    ckvc_rng_init(&r, 7, ckvc_rng_key("poisson"), 3);
    for (int i = 0; i < 100000; i++) {
        uint32_t k = ckvc_rng_poisson1(&r);
        sum += k;
        square += (double)k * k;
    }
    /* Mean 1 and variance 1, within five standard errors of 100,000 draws. */
    assert_true(sum / 1e5 > 0.984 && sum / 1e5 < 1.016);
    assert_true(square / 1e5 - 1 > 0.95 && square / 1e5 - 1 < 1.05);
    uint32_t items[50], moved = 0;
    uint64_t seen = 0;
    for (uint32_t i = 0; i < 50; i++) { items[i] = i; }
    ckvc_rng_shuffle_u32(&r, items, 50);
    for (uint32_t i = 0; i < 50; i++) {
        seen |= UINT64_C(1) << items[i];
        moved += items[i] != i;
    }
    assert_true(seen == (UINT64_C(1) << 50) - 1 && moved > 30);
    for (int i = 0; i < 1000; i++) { assert_true(ckvc_rng_below(&r, 7) < 7); }
}

enum { TASKS = 1000 };
static void count_task(void *ctx, int64_t task, int worker) {
    atomic_fetch_add(&((atomic_int *)ctx)[task], 1);
}

/* Every float16 keeps its bits. A number between two goes to the nearer one, and from half-way to
 * the even one; the bits of positive ones ascend with their values. */
TEST(half) {
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        const uint16_t h = (uint16_t)bits, next = (uint16_t)(h + 1);
        if (!ckvc_f16_is_finite(h)) { continue; }
        assert_int_equal(ckvc_f16_of_f32(ckvc_f32_of_f16(h)), h);
        const float value = ckvc_f32_of_f16(h),
                    after =
                        ckvc_f16_is_finite(next) ? ckvc_f32_of_f16(next) : copysignf(65536, value),
                    middle = (value + after) / 2; /* exact in float32 */
        assert_int_equal(ckvc_f16_of_f32(middle), h % 2 ? next : h);
        assert_int_equal(ckvc_f16_of_f32(nextafterf(middle, value)), h);
        assert_int_equal(ckvc_f16_of_f32(nextafterf(middle, after)), next);
    }
    assert_true(ckvc_f32_of_f16(0x3c01) == 1.0009765625f && ckvc_f32_of_f16(0x8001) == -0x1p-24f);
    assert_int_equal(ckvc_f16_of_f32(INFINITY), 0x7c00);
    assert_int_equal(ckvc_f16_of_f32(-1e30f), 0xfc00);
    assert_true(!ckvc_f16_is_finite(ckvc_f16_of_f32(NAN)) && ckvc_f16_of_f32(NAN) != 0x7c00);
}

TEST(pool) {
    static atomic_int done[TASKS];
    for (int threads = 1; threads <= 5; threads++) {
        ckvc_pool *pool;
        OK(ckvc_pool_create(threads, &pool, &err));
        memset(done, 0, sizeof done);
        for (int round = 0; round < 50; round++) { ckvc_pool_run(pool, TASKS, count_task, done); }
        for (int i = 0; i < TASKS; i++) { assert_int_equal(atomic_load(&done[i]), 50); }
        ckvc_pool_destroy(pool);
    }
    ckvc_pool *pool;
    FAILS(ckvc_pool_create(0, &pool, &err), CKVC_E_USAGE);
}

TEST(publish) {
    const char *path = in_temp_folder("file");
    OK(ckvc_publish_bytes(path, "one", 3, false, &err));
    SAYS(ckvc_publish_bytes(path, "two", 3, false, &err), CKVC_E_CREATE, "exists already");
    char *text;
    size_t n;
    OK(ckvc_file_read(path, 100, &text, &n, &err));
    assert_string_equal(text, "one");
    free(text);
    FAILS(ckvc_file_read(path, 2, &text, &n, &err), CKVC_E_DATA);
    OK(ckvc_publish_bytes(path, "three", 5, true, &err));
    OK(ckvc_file_read(path, 100, &text, &n, &err));
    assert_string_equal(text, "three");
    free(text);
    FAILS(ckvc_publish_bytes(in_temp_folder("none/file"), "x", 1, false, &err), CKVC_E_CREATE);
    FAILS(ckvc_file_read(temp_folder, 100, &text, &n, &err), CKVC_E_NOINPUT);
    /* Nothing temporary is left behind, and what a killed process left is swept: its own name's
     * alone, no name that only looks like one, and nothing that has an owner. */
    const char *held = in_temp_folder("file.tmp.0123456789abcdef"),
               *left = put_text("file.tmp.0123456789abcde0", "");
    const int owner = open(held, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(flock(owner, LOCK_EX), 0);
    shell("cd %s && touch file.tmp.1.0 file.tmp.5.old files.tmp.0123456789abcdef "
          "file.tmp.0123456789abcdef.x",
          temp_folder);
    OK(ckvc_publish_bytes(path, "four", 4, true, NULL));
    assert_int_equal(access(left, F_OK), -1);
    shell("test $(ls %s | wc -l) = 6", temp_folder);
    close(owner);
    OK(ckvc_publish_bytes(path, "four", 4, true, NULL));
    assert_int_equal(access(held, F_OK), -1);
    shell("test $(ls %s | wc -l) = 5", temp_folder);
}

TEST(lines) {
    static const char text[] = "one\n\nthree";
    static const size_t sizes[] = {3, 0, 5};
    uint32_t n = 0;
    for (ckvc_lines at = ckvc_lines_of(text, sizeof text - 1); ckvc_next_line(&at); n++) {
        assert_int_equal(at.number, n + 1);
        assert_int_equal(at.n, sizes[n]);
        assert_int_equal(at.ended, n < 2);
    }
    assert_int_equal(n, 3);
    ckvc_lines none = ckvc_lines_of("", 0);
    assert_false(ckvc_next_line(&none));
}

TEST(json_rules) {
    json_auto_t *o = json_pack("{s:i, s:i, s:s, s:s, s:f}", "n", 7, "less", -1, "hex", "0af",
                               "text", "0aF", "real", 7.0);
    uint64_t v = 0;
    assert_true(ckvc_json_get_count(o, "n", 7, &v));
    assert_int_equal(v, 7);
    assert_false(ckvc_json_get_count(o, "n", 6, &v) || ckvc_json_get_count(o, "less", 9, &v) ||
                 ckvc_json_get_count(o, "real", 9, &v) || ckvc_json_get_count(o, "none", 9, &v));
    assert_true(ckvc_json_is_hex(json_object_get(o, "hex"), 3));
    assert_false(ckvc_json_is_hex(json_object_get(o, "hex"), 4) ||
                 ckvc_json_is_hex(json_object_get(o, "text"), 3) || ckvc_json_is_hex(NULL, 0));
    assert_true(ckvc_json_is_finite(json_object_get(o, "n")));
    assert_false(ckvc_json_is_finite(json_object_get(o, "hex")) || ckvc_json_is_finite(NULL));
}

TEST(json) {
    json_t *v;
    const char *text = "{\"b\": 1, \"a\": [0.1, 1e300, \"q\\\"\\u0001\", null, true], \"B\": 2.0}";
    OK(ckvc_json_parse(text, strlen(text), "here", &v, &err));
    CKVC_AUTO_FREE char *canonical = ckvc_json_canonical(v);
    assert_string_equal(canonical, "{\"B\":2,\"a\":[0.10000000000000001,1.0000000000000001e+300,"
                                   "\"q\\\"\\u0001\",null,true],\"b\":1}");
    json_decref(v);
    SAYS(ckvc_json_parse("{\"a\":1,\"a\":2}", 13, "here", &v, &err), CKVC_E_DATA, "here:1:");
}

TEST(errors) {
    FAILS(ckvc_fail(&err, CKVC_E_DATA, "first %s", "a\nb"), CKVC_E_DATA);
    assert_int_equal(ckvc_fail(&err, CKVC_E_IO, "second"), CKVC_E_IO);
    assert_string_equal(err.text, "first a b"); /* the first error wins, on one line */
    assert_int_equal(ckvc_exit_code(err.status), 65);
    assert_int_equal(ckvc_exit_code(CKVC_E_STOPPED), 75);
}

/* How a child that does this ends: its exit code, -1 for a signal. */
static int ending(void (*fn)(void)) {
    int status;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        close(STDERR_FILENO);
        fn();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void allocate_overflow(void) { free(ckvc_alloc(SIZE_MAX / 2, 4)); }

#if !defined(__SANITIZE_ADDRESS__) &&                                                              \
    !defined(__SANITIZE_THREAD__) /* their malloc has its own end */
static void allocate_refused(void) {
    const struct rlimit none = {1 << 20, 1 << 20};
    setrlimit(RLIMIT_AS, &none);
    free(ckvc_calloc(1, (size_t)1 << 30));
}
#else
#define allocate_refused allocate_overflow
#endif

/* Memory that is out ends the process with the exit code of CKVC_E_MEMORY. */
/* What would move a terminal's cursor, or turn its writing round, is shown as '?'. */
TEST(tamed_text) {
    static const char *const cases[][3] = {
        {"plain, \xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "",
         "plain, \xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"},
        {"a\x1b[31m\x07\x7f", "", "a?[31m??"},
        {"a\tb\nc\rd", "", "a b c d"},
        {"a\tb\nc\rd", "\n\t", "a\tb\nc d"},
        {"\xC2\x80\xC2\x9B\xC2\x9F\xC2\xA0", "", "???\xC2\xA0"},
        {"\xD8\x9B\xD8\x9C\xD8\x9D", "", "\xD8\x9B?\xD8\x9D"},
        {"\xE2\x80\x8D\xE2\x80\x8E\xE2\x80\x8F\xE2\x80\x90", "", "\xE2\x80\x8D??\xE2\x80\x90"},
        {"\xE2\x80\xA7\xE2\x80\xA8\xE2\x80\xAE\xE2\x80\xAF", "", "\xE2\x80\xA7??\xE2\x80\xAF"},
        {"\xE2\x81\xA5\xE2\x81\xA6\xE2\x81\xA9\xE2\x81\xAA", "", "\xE2\x81\xA5??\xE2\x81\xAA"},
        {"\x9B"
         "1m\xFF\xE2\x82",
         "", "?1m???"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CKVC_AUTO_FREE char *text = ckvc_strdup(cases[i][0]);
        ckvc_utf8_tame(text, cases[i][1]);
        assert_string_equal(text, cases[i][2]);
    }
}

TEST(out_of_memory) {
    assert_int_equal(ending(allocate_overflow), 71);
    assert_int_equal(ending(allocate_refused), 71);
}

#ifdef CKVC_DEBUG
static void allocate_forbidden(void) {
    ckvc_alloc_forbid("outer");
    ckvc_alloc_forbid("inner");
    ckvc_alloc_permit();
    free(ckvc_alloc(1, 1));
}

static void allocate_permitted(void) {
    ckvc_alloc_forbid("here");
    ckvc_alloc_permit();
    free(ckvc_alloc(1, 1));
}
#endif

/* In a debug build an allocation inside the guard ends the process; elsewhere it is nothing. */
TEST(alloc_guard) {
#ifdef CKVC_DEBUG
    assert_int_equal(ending(allocate_forbidden), -1);
    assert_int_equal(ending(allocate_permitted), 0);
#else
    ckvc_alloc_forbid("here");
    void *p = ckvc_alloc(1, 1);
    assert_non_null(p);
    free(p);
    ckvc_alloc_permit();
#endif
    assert_true(ckvc_available_memory() > (size_t)1 << 20);
}

TEST(hash_keys) {
    const uint64_t key = ckvc_hash_key();
    assert_true(key & 1);
    assert_true(ckvc_hash_key() == key);
    assert_true(ckvc_xxh64_keyed("a", 1, key) != ckvc_xxh64_keyed("a", 1, key + 2));
    assert_true(ckvc_xxh64_keyed("a", 1, 0) == ckvc_xxh64("a", 1));
}

/* A terminal's signal comes more than once, and is never the last word. */
static void hung_up(void) {
    ckvc_stop_install(0);
    if (ckvc_stop_requested()) { _exit(1); }
    raise(SIGHUP);
    raise(SIGHUP);
    _exit(ckvc_stop_requested() ? 42 : 1);
}

static void hung_up_under_nohup(void) {
    signal(SIGHUP, SIG_IGN);
    ckvc_stop_install(0);
    raise(SIGHUP);
    _exit(ckvc_stop_requested() ? 1 : 42);
}

static void stopped_twice(void) {
    ckvc_stop_install(0);
    raise(SIGHUP);
    raise(SIGTERM);
    _exit(1);
}

static void out_of_time(void) {
    ckvc_stop_install(0.05);
    if (ckvc_stop_requested()) { _exit(1); }
    nanosleep(&(struct timespec){.tv_nsec = 60000000}, NULL);
    _exit(ckvc_stop_requested() ? 42 : 1);
}

TEST(stop) {
    assert_int_equal(ending(out_of_time), 42);
    assert_int_equal(ending(hung_up), 42);
    assert_int_equal(ending(hung_up_under_nohup), 42);
    assert_int_equal(ending(stopped_twice), 130);
}

static time_t passed_s; /* on the library's clock */

/* 3 or 4 prompts are done after 20 s. Then 3 s pass before half a layer is done, and behind it, or
 * 45 s, as after 6 prompts or none. */
static void a_job(uint64_t already, uint64_t done, uint64_t units, bool quiet) {
    const time_t first_s = done == 3 || done == 4 ? 20 : 0,
                 pause_s = done == 4                             ? 3
                           : done == 6 || done == 3 || done == 0 ? 45
                                                                 : 0;
    ckvc_progress_quiet(quiet);
    ckvc_progress_start("job", "prompts", "rollouts", 10, already);
    if (done > 0) {
        ckvc_progress_step(2);
        if (done == 5) { ckvc_progress_disk("/", 2000000); }
        passed_s += first_s;
        ckvc_progress_update(done, units);
    }
    passed_s += pause_s;
    ckvc_progress_layer(0.5);
    passed_s += pause_s;
    ckvc_progress_finish();
}

/* What the progress of a job of ten prompts says on stderr, which is no terminal here. */
static char *progress_text(uint64_t already, uint64_t done, uint64_t units, bool quiet) {
    FILE *f = tmpfile();
    char *text = ckvc_calloc(4096, 1);
    const int before = dup(STDERR_FILENO);
    assert_non_null(f);
    fflush(stderr);
    dup2(fileno(f), STDERR_FILENO);
    a_job(already, done, units, quiet);
    dup2(before, STDERR_FILENO);
    close(before);
    rewind(f);
    assert_true(fread(text, 1, 4095, f) < 4095);
    fclose(f);
    return text;
}

/* Whether the first line says that so many seconds are left, and the last one `then`, where the
 * test itself may take a second or two. */
static bool says_left(const char *text, int first, int then) {
    int s[2] = {-1, -1}, n = 0;
    for (const char *at = text; (at = strstr(at, "ETA ")); at++) {
        const int hours = at[4] - '0', minutes = atoi(at + 6), seconds = atoi(at + 9);
        s[n > 0] = 60 * (60 * hours + minutes) + seconds;
        n++;
    }
    return n > 1 && abs(s[0] - first) <= 2 && abs(s[1] - then) <= 2;
}

TEST(progress) {
    /* no rate of nothing */
    CKVC_AUTO_FREE char *resumed = progress_text(10, 10, 0, false);
    assert_int_equal(strncmp(resumed, "job: 10 of 10 prompts, memory ", 30), 0);
    CKVC_AUTO_FREE char *half = progress_text(2, 5, 7, false);
    assert_int_equal(strncmp(half, "job: 5 of 10 prompts, ", 22), 0);
    assert_non_null(strstr(half, " rollouts/s, ETA 0:00:00 (20"));
    assert_non_null(strstr(half, "), 2.0 of about 4.0 MB written, "));
    assert_non_null(strstr(half, " GB free, memory "));
    assert_int_equal(half[strlen(half) - 1], '\n');
    assert_null(strstr(half, "the next"));
    CKVC_AUTO_FREE char *slow = progress_text(2, 6, 7, false); /* a line inside the prompt */
    assert_int_equal(strncmp(slow, "job: 6 of 10 prompts (the next: 45 s), ", 39), 0);
    assert_non_null(strstr(slow, "\njob: 6 of 10 prompts (the next: 90 s), "));
    assert_null(strstr(slow, "MB/h")); /* the growth of a minute is no leak */
    CKVC_AUTO_FREE char *first = progress_text(0, 0, 0, false); /* a rate before any unit */
    assert_non_null(strstr(first, "job: 0 of 10 prompts (the next: 0.5 layers done in 45 s), "
                                  "0.011 layers/s, memory "));
    assert_null(strstr(slow, "layers"));
    /* what is left falls while the next prompt is in hand, but not below the prompts behind it;
     * those that were there before do not count as fast ones */
    CKVC_AUTO_FREE char *falling = progress_text(2, 4, 7, false);
    assert_true(says_left(falling, 60, 54));
    CKVC_AUTO_FREE char *stuck = progress_text(2, 3, 7, false);
    assert_true(says_left(stuck, 140, 120));
    ckvc_progress_stage(2, 3);
    CKVC_AUTO_FREE char *second = progress_text(10, 10, 0, false);
    assert_int_equal(strncmp(second, "step 2 of 3, job: 10 of 10 prompts, memory ", 43), 0);
    ckvc_progress_stage(0, 0);
    CKVC_AUTO_FREE char *nothing = progress_text(0, 10, 7, true);
    assert_string_equal(nothing, "");
}

static char warnings[4096];

static void take_warning(const char *line) {
    snprintf(warnings + strlen(warnings), sizeof warnings - strlen(warnings), "%s\n", line);
}

/* What a test adds to the clock has passed. */
int clock_gettime(clockid_t id, struct timespec *t) {
    const int got = (int)syscall(SYS_clock_gettime, id, t);
    t->tv_sec += passed_s;
    return got;
}

/* A prompt a second: lines come after 3, 6, 12, 24, 48, 96, 192 s or a little more. */
static const char *warned(uint64_t bytes) {
    warnings[0] = 0;
    ckvc_warn_set(take_warning);
    ckvc_progress_quiet(true);
    ckvc_progress_start("job", "prompts", "prompts", (uint64_t)1 << 40, 0);
    ckvc_progress_disk("/", bytes);
    for (uint64_t i = 0; i < 300; i++) {
        ckvc_progress_update(i + 1, i + 1);
        passed_s++;
    }
    ckvc_progress_finish();
    ckvc_warn_set(NULL);
    return warnings;
}

TEST(what_will_lack) {
    assert_string_equal(warned(0), "");
    const char *disk = warned(1000000);
    for (int line = 0; line < 7; line++) {
        disk = strstr(disk + 1, "MB more will be written, ");
        assert_non_null(disk);
    }
}

TEST(durations) {
    static const struct {
        double s;
        const char *text;
    } cases[] = {
        {0, "0 s"},
        {0.042, "0.042 s"},
        {3.24, "3.2 s"},
        {36.6, "37 s"},
        {59.6, "1 min 00 s"},
        {245, "4 min 05 s"},
        {3599.6, "1 h 00 min"},
        {7500, "2 h 05 min"},
        {86400, "24 h 00 min"},
        {273600, "3 d 04 h"},
        {NAN, "0 s"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[CKVC_DURATION];
        ckvc_duration(cases[i].s, out);
        assert_string_equal(out, cases[i].text);
    }
}

RUN_TESTS(temp_folder_make, temp_folder_remove)
