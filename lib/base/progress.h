/* What the user of a long job sees: the clock, its progress, and stopping it on request.
 *
 * The progress of one job at a time goes to stderr, and nothing does with -q. A terminal shows a
 * line that is redrawn. Besides there are lines that stay: on a terminal one every ten minutes,
 * elsewhere also sooner, and one at the end. These read
 *
 *     scan: 120 of 4000 prompts (the next: 5 s), 3.4 prompts/s, ETA 0:19:01 (2026-11-23 01:14),
 *     1.2 of about 40.0 MB written, 120.3 GB free, memory 812.0 MB
 *
 * where the time of the next prompt is how long ago it began, and the memory is the resident memory
 * without mapped files. Until the first unit of work is done, layers are counted in its place, so
 * that every model shows progress from the first seconds on: "0 of 12 prompts (the next: 12.4
 * layers done in 6 s), 2.1 layers/s". A prompt passes through each layer several times. If the disk
 * will not hold what is still to be written, a warning follows the line, also with -q. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

double ckvc_now_s(void); /* monotonic seconds */

/* Whether progress lines are left out (-q) from here on. */
void ckvc_progress_quiet(bool quiet);
/* Starts a job of `total` things ("prompts"), of which `already` were done before. unit names what
 * the rate counts ("rollouts"). A job that was in progress is forgotten. */
void ckvc_progress_start(const char *what, const char *things, const char *unit, uint64_t total,
                         uint64_t already);
/* Says that the work has `of` steps, of which this one is in hand: if there are several, lines of
 * the jobs that are started from here on begin with "step 1 of 3, ". of 0: the work is done. */
void ckvc_progress_stage(unsigned step, unsigned of);
/* Says that `done` of all things are done, and `units` (rollouts) since the start. The ETA uses
 * this process's own rate. */
void ckvc_progress_update(uint64_t done, uint64_t units);
/* Says how many bytes the files of all finished prompts take, and names one of these files or its
 * folder; the path is copied. */
void ckvc_progress_disk(const char *path, uint64_t bytes);
/* Adds units that were done inside a prompt that is still in progress. They count only until the
 * next update, whose `units` must include them. */
void ckvc_progress_step(uint64_t units);
/* Says that a pass inside a prompt has finished this share of a layer. */
void ckvc_progress_layer(double share);
/* Ends the job with its last line. */
void ckvc_progress_finish(void);
/* Ends a job that was only a step on the way to another: it prints no last line, and the redrawn
 * line is erased. */
void ckvc_progress_clear(void);

#define CKVC_DURATION 48
/* Writes seconds in words, in two units at most: "0.42 s", "37 s", "4 min 05 s", "2 h 05 min", "3 d
 * 04 h". */
void ckvc_duration(double seconds, char out[CKVC_DURATION]);

/* Installs the handlers of Ctrl-C, SIGTERM and SIGHUP. The first signal asks for a clean stop after
 * the prompts in hand. A second one ends the process at once with exit code 130, unless it is a
 * SIGHUP, which a closing terminal sends more than once. A clean stop is also asked for limit_s
 * seconds from now; 0 sets no limit. */
void ckvc_stop_install(double limit_s);
bool ckvc_stop_requested(void);
