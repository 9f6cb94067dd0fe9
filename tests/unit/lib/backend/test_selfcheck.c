/* No kernel is trusted because another one passed: what happens when the check at the start finds
 * one wrong, on one thread or on several; and what the kernels that take its place compute. */
#include "lib/backend/cpu/cpu_backend.h"
#include "lib/backend/cpu/cpu_fma.h"
#include "tests/unit/golden_model.h"

static const char *broken,
    *whole; /* kernels whose name has the first and not the other are spoilt */
static int from_threads;
static size_t n_seen;

static void spoil(const char *kernel, int n_threads, float *y, size_t n) {
    n_seen++;
    if (strstr(kernel, broken) && !strstr(kernel, whole) && n_threads >= from_threads) {
        y[n / 2 / 1111 * 1111] += 0.01f;
    }
}

static int set_up(void **state) {
    cpu_selfcheck_spoil = spoil;
    broken = whole = "nothing";
    from_threads = 1;
    n_seen = 0;
    return 0;
}

static int tear_down(void **state) {
    cpu_selfcheck_spoil = NULL;
    return 0;
}

static ckvc_status create_as(bool openblas, ckvc_compute compute, bench *b) {
    *b = (bench){0};
    OK(ckvc_pool_create(3, &b->pool, &err));
    return cpu_backend_create(openblas, compute, b->pool, &b->be, &err);
}

static ckvc_status create(bool openblas, bench *b) {
    return create_as(openblas, CKVC_COMPUTE_F32, b);
}

TEST(whole) {
    CKVC_AUTO(bench_close) bench b;
    OK(create(false, &b));
    assert_string_equal(b.be->warning, "");
    assert_true(n_seen >= 3 * 5); /* three operations, on one thread once and on all a few times */
}

/* Where the CPU multiplies in bf16 and gets it wrong, bf16 is emulated. */
TEST(bf16_gives_way) {
    CKVC_AUTO(bench_close) bench b, other;
    OK(create_as(false, CKVC_COMPUTE_BF16, &b));
    broken = "+bf16";
    whole = "emulated";
    OK(create_as(false, CKVC_COMPUTE_BF16, &other));
    assert_non_null(strstr(other.be->kernel, "+bf16-emulated"));
    assert_non_null(strstr(other.be->compute_warning, "saves no time"));
    assert_int_equal(strcmp(b.be->kernel, other.be->kernel) != 0, other.be->warning[0] != '\0');
}

/* Chosen by the program: the next kernel takes over, and a person is told. */
TEST(gives_way) {
    const cpu_fma *const *list = cpu_fma_list(CKVC_COMPUTE_F32);
    if (!*list) {
        print_message("skipped: this CPU has no kernels of ours\n");
        skip();
    }
    for (from_threads = 1; from_threads <= 3; from_threads += 2) {
        for (int i = 0; list[i]; i++) {
            CKVC_AUTO(bench_close) bench b;
            char next[64];
            snprintf(next, sizeof next, "cpu/%s", list[i + 1] ? list[i + 1]->name : "OpenBLAS-");
            broken = i == 0 ? list[0]->name : "AVX"; /* the first, or all of ours */
            OK(create(false, &b));
            assert_int_equal(strncmp(b.be->kernel, next, strlen(next)), 0);
            assert_non_null(strstr(b.be->warning, list[0]->name));
            assert_non_null(strstr(b.be->warning, "going on with cpu/"));
            assert_true(from_threads == 1 || strstr(b.be->warning, "3 threads differ from one"));
        }
    }
}

/* Asked for by name, or the last: an error that says what else there is. */
TEST(stops) {
    static const struct {
        const char *broken;
        bool openblas;
        const char *says;
    } cases[] = {{"OpenBLAS", true, "use --backend cpu"}, {"cpu/", false, "wrong on this machine"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (from_threads = 1; from_threads <= 3; from_threads += 2) {
            CKVC_AUTO(bench_close) bench b;
            broken = cases[i].broken;
            SAYS(create(cases[i].openblas, &b), CKVC_E_DEVICE, cases[i].says);
            assert_null(b.be);
            assert_non_null(strstr(err.text, "self-check"));
        }
    }
}

int main(void) {
    before_each = set_up;
    after_each = tear_down;
    return unit_run(NULL, NULL);
}
