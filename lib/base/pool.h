/* The thread pool. The caller cuts its work into n_tasks fixed tasks. Which worker runs a task
 * never influences what it computes, so the results are the same bytes for any number of threads.
 *
 * Only one ckvc_pool_run may be in progress in a pool; the calling thread takes part as worker 0.
 * fn must not call ckvc_pool_run itself. */
#pragma once

#include <stdint.h>

#include "lib/base/status.h"

typedef struct ckvc_pool ckvc_pool;
typedef void (*ckvc_task_fn)(void *ctx, int64_t task, int worker);

int ckvc_cpu_count(void); /* cores this process may use (affinity mask), at least 1 */
ckvc_status ckvc_pool_create(int n_threads, ckvc_pool **out, ckvc_err *err) CKVC_MUST_CHECK;
void ckvc_pool_destroy(ckvc_pool *pool);
int ckvc_pool_threads(const ckvc_pool *pool);
/* Runs fn(ctx, t, worker) for t = 0 ... n_tasks-1, each once, and returns when all are done. worker
 * is in [0, threads). */
void ckvc_pool_run(ckvc_pool *pool, int64_t n_tasks, ckvc_task_fn fn, void *ctx);
