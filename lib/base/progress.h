/* A long job as its user sees it: the clock, progress, stopping on request.
 *
 * Progress goes to stderr, of one job at a time, nothing with -q: a redrawn line on a terminal, and
 * lines that stay, there every ten minutes, elsewhere also sooner, and at the end. These say
 *
 *     scan: 120 of 4000 prompts, at the next for 5 s, 3.4 prompts/s, ETA 0:19:01 (2026-11-23
 *     01:14), 1.2 of about 40.0 MB written, 120.3 GB free, memory 812.0 MB
 *
 * with the resident memory but for mapped files. While nothing that is counted is done, so on any
 * model from the first seconds on, layers stand for it: "0 of 12 prompts and 12.4 layers, at the
 * next for 6 s, 2.1 layers/s"; a prompt goes through each several times. Behind them a warning,
 * also with -q, of disk that will not do. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

double ckvc_now_s(void); /* monotonic seconds */

/* No line of any job from here on (-q), or lines again. */
void ckvc_progress_quiet(bool quiet);
/* A job of `total` things ("prompts"), `already` of them done before. unit: what has a rate
 * ("rollouts"). One that was under way has ended. */
void ckvc_progress_start(const char *what, const char *things, const char *unit, uint64_t total,
                         uint64_t already);
/* `done` things of total, `units` (rollouts) since the start; the ETA is from this process's own
 * rate. */
void ckvc_progress_update(uint64_t done, uint64_t units);
/* Bytes in files of all prompts that are done, and one of these files or its folder (copied). */
void ckvc_progress_disk(const char *path, uint64_t bytes);
/* Inside a prompt: so many units more, until the next update counts them. */
void ckvc_progress_step(uint64_t units);
/* Inside a prompt: a pass is through this share of a layer. */
void ckvc_progress_layer(double share);
void ckvc_progress_finish(void);
/* Ends a job that is a step on the way to another: no line of its end, the redrawn one goes. */
void ckvc_progress_clear(void);

#define CKVC_DURATION 48
/* Seconds in words, two units at most: "0.42 s", "37 s", "4 min 05 s", "2 h 05 min", "3 d 04 h". */
void ckvc_duration(double seconds, char out[CKVC_DURATION]);

/* Ctrl-C, SIGTERM and SIGHUP: the first asks for a clean stop after the prompts in hand, the second
 * ends the process at once (130). So does the end of limit_s seconds from now, 0: none. */
void ckvc_stop_install(double limit_s);
bool ckvc_stop_requested(void);
