/* A long job as its user sees it: the clock, progress, stopping on request.
 *
 * Progress goes to stderr, of one job at a time: a redrawn line on a terminal, elsewhere a line
 * after a few seconds and then every 30 s, nothing with -q. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

double ckvc_now_s(void); /* monotonic seconds */

/* A job of `total` prompts, `already` of them done before; unit: what is counted a second
 * ("rollouts"). */
void ckvc_progress_start(const char *what, const char *unit, uint64_t total, uint64_t already,
                         bool quiet);
/* `done` prompts of total, `units` (rollouts) since the start; the ETA is from this process's own
 * rate. */
void ckvc_progress_update(uint64_t done, uint64_t units);
/* Inside a prompt: so many units more, until the next update counts them. */
void ckvc_progress_step(uint64_t units);
void ckvc_progress_finish(void);

#define CKVC_DURATION 48
/* Seconds in words, two units at most: "0.42 s", "37 s", "4 min 05 s", "2 h 05 min", "3 d 04 h". */
void ckvc_duration(double seconds, char out[CKVC_DURATION]);

/* Ctrl-C, SIGTERM and SIGHUP: the first asks for a clean stop after the prompts in hand, the second
 * ends the process at once (130). */
void ckvc_stop_install(void);
bool ckvc_stop_requested(void);
