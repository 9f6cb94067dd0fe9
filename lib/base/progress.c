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

void ckvc_progress_start(ckvc_progress *p, const char *what, const char *unit, uint64_t total,
                         uint64_t already, bool quiet) {
    const char *term = getenv("TERM");
    *p = (ckvc_progress){.quiet = quiet,
                         .what = what,
                         .unit = unit,
                         .total = total,
                         .done = already,
                         .resumed = already};
    p->terminal = isatty(STDERR_FILENO) && !(term && strcmp(term, "dumb") == 0);
    p->start_s = ckvc_now_s();
    p->last_s = p->start_s;
}

static void print_line(const ckvc_progress *p, double now) {
    double elapsed = now - p->start_s;
    uint64_t fresh = p->done - p->resumed;
    char eta[64] = "";
    if (fresh > 0 && p->done < p->total) {
        double left = elapsed / (double)fresh * (double)(p->total - p->done);
        snprintf(eta, sizeof eta, ", ETA %d:%02d:%02d", (int)(left / 3600), (int)(left / 60) % 60,
                 (int)left % 60);
    }
    fprintf(stderr, "%s%s: %llu of %llu prompts, %.1f %s/s%s%s", p->terminal ? "\r\033[K" : "",
            p->what, (unsigned long long)p->done, (unsigned long long)p->total,
            elapsed > 0 ? (double)p->units / elapsed : 0.0, p->unit, eta, p->terminal ? "" : "\n");
    fflush(stderr);
}

void ckvc_progress_update(ckvc_progress *p, uint64_t done, uint64_t units) {
    p->done = done;
    p->units = units;
    double now = ckvc_now_s();
    if (p->quiet || now - p->last_s < (p->terminal ? 0.2 : 30.0)) { return; }
    p->last_s = now;
    print_line(p, now);
}

void ckvc_progress_finish(ckvc_progress *p) {
    if (p->quiet) { return; }
    print_line(p, ckvc_now_s());
    if (p->terminal) { fputc('\n', stderr); }
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
    (void)sig;
    static const char first[] =
        "\nckvc: stopping after the prompt in hand; once more to stop now\n";
    if (requests++ > 0) { _exit(130); }
    /* write() is async-signal-safe; nothing can be done about its failing. */
    ssize_t ignored = write(STDERR_FILENO, first, sizeof first - 1);
    (void)ignored;
}

void ckvc_stop_install(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool ckvc_stop_requested(void) {
    return requests > 0;
}
