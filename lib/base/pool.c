/* The thread pool: see pool.h. Workers take tasks from an atomic counter. Between runs they look
 * for the next one for a few microseconds, because the operations of a layer follow each other that
 * closely; then they sleep on a condition variable. */
#include "lib/base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "lib/base/memory.h"

struct ckvc_pool {
    int n_threads;
    pthread_t *threads; /* [n_threads-1], as the caller is worker 0 */
    struct worker_arg {
        struct ckvc_pool *pool;
        int index;
    } * args;
    pthread_mutex_t mutex;
    pthread_cond_t start, finish;
    atomic_ullong generation; /* counts runs; it is written after what describes the run */
    atomic_int busy;          /* workers that are still in this run */
    atomic_int stop;
    ckvc_task_fn fn;
    void *ctx;
    int64_t n_tasks;
    atomic_llong next;
};

int ckvc_cpu_count(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) {
        return CPU_COUNT(&set);
    }
    return 1;
}

static void run_tasks(ckvc_pool *p, int worker) {
    for (;;) {
        int64_t task = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (task >= p->n_tasks) { return; }
        p->fn(p->ctx, task, worker);
    }
}

enum { SPINS = 1000 }; /* some 20 microseconds; sleeping and waking up costs more */

static void pause_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

/* Returns the number of a run after `seen` as soon as there is one, or 0 when the pool stops. */
static uint64_t next_run(ckvc_pool *p, uint64_t seen) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->generation, memory_order_acquire) != seen) { return seen + 1; }
        pause_cpu();
    }
    pthread_mutex_lock(&p->mutex);
    while (atomic_load(&p->generation) == seen && !atomic_load(&p->stop)) {
        pthread_cond_wait(&p->start, &p->mutex);
    }
    bool over = atomic_load(&p->generation) == seen;
    pthread_mutex_unlock(&p->mutex);
    return over ? 0 : seen + 1;
}

static void *worker_main(void *arg) {
    struct worker_arg *a = arg;
    ckvc_pool *p = a->pool;
    uint64_t seen = 0, run;
    while ((run = next_run(p, seen)) != 0) {
        seen = run;
        run_tasks(p, a->index);
        if (atomic_fetch_sub(&p->busy, 1) == 1) {
            pthread_mutex_lock(&p->mutex);
            pthread_cond_signal(&p->finish);
            pthread_mutex_unlock(&p->mutex);
        }
    }
    return NULL;
}

ckvc_status ckvc_pool_create(int n_threads, ckvc_pool **out, ckvc_err *err) {
    *out = NULL;
    CKVC_FAIL_IF(n_threads < 1 || n_threads > 1024, err, CKVC_E_USAGE,
                 "threads: got %d, wanted 1 to 1024", n_threads);
    ckvc_pool *p = ckvc_calloc(1, sizeof *p);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->start, NULL);
    pthread_cond_init(&p->finish, NULL);
    p->n_threads = 1;
    p->threads = ckvc_calloc((size_t)n_threads, sizeof *p->threads);
    p->args = ckvc_calloc((size_t)n_threads, sizeof *p->args);
    for (int i = 1; i < n_threads; i++) {
        p->args[i - 1] = (struct worker_arg){p, i};
        int rc = pthread_create(&p->threads[i - 1], NULL, worker_main, &p->args[i - 1]);
        if (rc) {
            ckvc_pool_destroy(p);
            return ckvc_fail(err, CKVC_E_SYSTEM,
                             "cannot start thread %d of %d; use fewer with --threads", i + 1,
                             n_threads);
        }
        p->n_threads = i + 1;
    }
    *out = p;
    return CKVC_OK;
}

void ckvc_pool_destroy(ckvc_pool *p) {
    if (!p) { return; }
    pthread_mutex_lock(&p->mutex);
    atomic_store(&p->stop, 1);
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->mutex);
    for (int i = 1; i < p->n_threads; i++) { pthread_join(p->threads[i - 1], NULL); }
    pthread_cond_destroy(&p->finish);
    pthread_cond_destroy(&p->start);
    pthread_mutex_destroy(&p->mutex);
    CKVC_FREE(p->threads, p->args, p);
}

int ckvc_pool_threads(const ckvc_pool *pool) { return pool->n_threads; }

void ckvc_pool_run(ckvc_pool *p, int64_t n_tasks, ckvc_task_fn fn, void *ctx) {
    if (p->n_threads == 1 || n_tasks <= 1) {
        for (int64_t t = 0; t < n_tasks; t++) { fn(ctx, t, 0); }
        return;
    }
    /* No worker is in a run now, as busy was 0 when the last one ended. */
    p->fn = fn;
    p->ctx = ctx;
    p->n_tasks = n_tasks;
    atomic_store(&p->next, 0);
    atomic_store(&p->busy, p->n_threads - 1);
    pthread_mutex_lock(&p->mutex);
    atomic_fetch_add_explicit(&p->generation, 1, memory_order_release);
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->mutex);
    run_tasks(p, 0);
    for (int i = 0; i < SPINS && atomic_load_explicit(&p->busy, memory_order_acquire) > 0; i++) {
        pause_cpu();
    }
    if (atomic_load(&p->busy) > 0) {
        pthread_mutex_lock(&p->mutex);
        while (atomic_load(&p->busy) > 0) { pthread_cond_wait(&p->finish, &p->mutex); }
        pthread_mutex_unlock(&p->mutex);
    }
}
