/* The thread pool. The caller cuts its work into n_tasks fixed tasks. Which worker runs a task
 * never influences what it computes, so the results are the same bytes for any number of threads.
 *
 * Only one ckvc_pool_run may be in progress in a pool; the calling thread takes part as worker 0.
 * fn must not call ckvc_pool_run itself. */
#pragma once

#include <stdint.h>

#include "lib/base/status.h"

typedef struct ckvc_pool ckvc_pool;
/* Does one task. `worker` says which thread runs it, so that each thread can have scratch memory of
 * its own; nothing else may depend on it. */
typedef void (*ckvc_task_fn)(void *ctx, int64_t task, int worker);

int ckvc_cpu_count(void); /* cores this process may use (affinity mask), at least 1 */
/* Makes a pool of n_threads threads, the calling one among them. Free *out with ckvc_pool_destroy;
 * it is NULL after a failure. CKVC_E_USAGE for anything but 1 to 1024 threads, CKVC_E_SYSTEM where
 * the system starts no more. */
ckvc_status ckvc_pool_create(int n_threads, ckvc_pool **out, ckvc_err *err) CKVC_MUST_CHECK;
/* Ends the threads. No ckvc_pool_run may be in progress. Does nothing with NULL. */
void ckvc_pool_destroy(ckvc_pool *pool);
int ckvc_pool_threads(const ckvc_pool *pool);
/* Runs fn(ctx, t, worker) for t = 0 ... n_tasks-1, each once and in any order, and returns when all
 * are done. worker is from 0 to ckvc_pool_threads - 1. */
void ckvc_pool_run(ckvc_pool *pool, int64_t n_tasks, ckvc_task_fn fn, void *ctx);
