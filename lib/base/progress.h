/* A long job as its user sees it: the clock, progress, stopping on request.
 *
 * Progress goes to stderr: one redrawn line on a terminal, one line every 30 s elsewhere, nothing
 * with -q. */
#ifndef CKVC_BASE_PROGRESS_H
#define CKVC_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ckvc_progress {
    bool quiet, terminal;
    const char *what, *unit; /* borrowed: "calibrate", "rollouts" */
    uint64_t done, total, units, resumed;
    double start_s, last_s;
} ckvc_progress;

double ckvc_now_s(void); /* monotonic seconds */
void ckvc_progress_start(ckvc_progress *p, const char *what, const char *unit, uint64_t total,
                         uint64_t already, bool quiet);
/* `done` prompts of total, `units` (rollouts) since the start; the ETA is from this process's own
 * rate. */
void ckvc_progress_update(ckvc_progress *p, uint64_t done, uint64_t units);
void ckvc_progress_finish(ckvc_progress *p);

#define CKVC_DURATION 48
/* Seconds in words, two units at most: "0.42 s", "37 s", "4 min 05 s", "2 h 05 min", "3 d 04 h". */
void ckvc_duration(double seconds, char out[CKVC_DURATION]);

/* Ctrl-C and SIGTERM: the first asks for a clean stop after the prompt in hand, the second ends the
 * process at once (130). */
void ckvc_stop_install(void);
bool ckvc_stop_requested(void);

#endif
