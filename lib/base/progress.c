/* Progress on stderr: see progress.h. */
#include "lib/base/progress.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

double ckvc_now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define FIRST_S  3.0 /* of seconds between lines where there is no terminal */
#define NEXT_S   30.0
#define REDRAW_S 0.2

static struct {
    bool shown, terminal;
    char what[64], unit[32];
    uint64_t done, total, units, inside, resumed;
    double start_s, next_s;
} job;

static void show(double now) {
    const double elapsed = now - job.start_s, rate = (double)(job.units + job.inside) / elapsed;
    const uint64_t fresh = job.done - job.resumed;
    char inside[64] = "", speed[64] = "", eta[64] = "";
    if (job.inside > 0) {
        snprintf(inside, sizeof inside, " and %llu %s", (unsigned long long)job.inside, job.unit);
    }
    if (isfinite(rate) && rate > 0) {
        snprintf(speed, sizeof speed, ", %.*f %s/s", rate < 0.1 ? 3 : 1, rate, job.unit);
    }
    if (fresh > 0 && job.done < job.total) {
        const double left = elapsed / (double)fresh * (double)(job.total - job.done);
        snprintf(eta, sizeof eta, ", ETA %d:%02d:%02d", (int)(left / 3600), (int)(left / 60) % 60,
                 (int)left % 60);
    }
    fprintf(stderr, "%s%s: %llu of %llu prompts%s%s%s%s", job.terminal ? "\r\033[K" : "", job.what,
            (unsigned long long)job.done, (unsigned long long)job.total, inside, speed, eta,
            job.terminal ? "" : "\n");
    fflush(stderr);
    job.next_s = now + (job.terminal ? REDRAW_S : NEXT_S);
}

static void show_when_due(void) {
    const double now = ckvc_now_s();
    if (job.shown && now >= job.next_s) { show(now); }
}

void ckvc_progress_start(const char *what, const char *unit, uint64_t total, uint64_t already,
                         bool quiet) {
    const char *term = getenv("TERM");
    memset(&job, 0, sizeof job);
    job.shown = !quiet;
    job.terminal = isatty(STDERR_FILENO) && !(term && strcmp(term, "dumb") == 0);
    snprintf(job.what, sizeof job.what, "%s", what);
    snprintf(job.unit, sizeof job.unit, "%s", unit);
    job.total = total;
    job.done = job.resumed = already;
    job.start_s = ckvc_now_s();
    job.next_s = job.start_s + (job.terminal ? 0 : FIRST_S);
    show_when_due();
}

void ckvc_progress_update(uint64_t done, uint64_t units) {
    job.done = done;
    job.units = units;
    job.inside = 0;
    show_when_due();
}

void ckvc_progress_step(uint64_t units) {
    job.inside += units;
    show_when_due();
}

void ckvc_progress_finish(void) {
    job.inside = 0;
    if (job.shown) { show(ckvc_now_s()); }
    if (job.shown && job.terminal) { fputc('\n', stderr); }
    job.shown = false;
}

void ckvc_duration(double seconds, char out[CKVC_DURATION]) {
    if (!(seconds >= 0)) { seconds = 0; }
    const double whole = floor(seconds + 0.5), minutes = floor(seconds / 60 + 0.5),
                 hours = floor(seconds / 3600 + 0.5);
    if (seconds < 9.95) {
        snprintf(out, CKVC_DURATION, "%.2g s", seconds);
    } else if (whole < 60) {
        snprintf(out, CKVC_DURATION, "%.0f s", whole);
    } else if (whole < 3600) {
        snprintf(out, CKVC_DURATION, "%.0f min %02.0f s", floor(whole / 60), fmod(whole, 60));
    } else if (minutes < 48 * 60) {
        snprintf(out, CKVC_DURATION, "%.0f h %02.0f min", floor(minutes / 60), fmod(minutes, 60));
    } else {
        snprintf(out, CKVC_DURATION, "%.0f d %02.0f h", floor(hours / 24), fmod(hours, 24));
    }
}

static volatile sig_atomic_t requests;

static void on_signal(int sig) {
    static const char first[] =
        "\nckvc: stopping after the prompt in hand; once more to stop now\n";
    if (requests > 0 && sig == SIGHUP) { return; } /* a closing terminal's comes more than once */
    if (requests++ > 0) { _exit(130); }
    /* write() is async-signal-safe; nothing can be done about its failing. */
    const ssize_t ignored = write(STDERR_FILENO, first, sizeof first - 1);
    (void)ignored;
}

void ckvc_stop_install(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    /* nohup stays nohup */
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
        sigaction(SIGHUP, &action, NULL);
    }
}

bool ckvc_stop_requested(void) { return requests > 0; }
