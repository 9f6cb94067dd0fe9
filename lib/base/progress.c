/* Progress lines on stderr: see progress.h. */
#include "lib/base/progress.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/status.h"

double ckvc_now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Where there is no terminal: the seconds until the first line; each next line comes at twice the
 * time. */
#define FIRST_S  3.0
#define MOST_S   600.0
#define REDRAW_S 0.2

static struct {
    bool running, terminal;
    char what[64], things[32], unit[32], folder[4096];
    uint64_t done, total, units, inside, resumed, bytes;
    double layers;
    /* When the job and its current prompt began; when the redrawn line and the next lasting line
     * are due. */
    double start_s, prompt_s, redraw_s, line_s;
} job;
static bool is_quiet;
static unsigned stage, stages; /* step `stage` of `stages` */

/* ---- memory ---- */

/* The resident bytes of the process itself; 0: not known. Mapped files, above all weights, do not
 * count, as the kernel takes their memory back when it needs it. */
static double own_memory(void) {
    char text[128] = "";
    const int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0) { return 0; }
    const ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0) { return 0; }
    char *at; /* pages: all, the resident ones, and those of these that files are mapped to */
    strtoull(text, &at, 10);
    const unsigned long long resident = strtoull(at, &at, 10), mapped = strtoull(at, &at, 10);
    return resident > mapped ? (double)(resident - mapped) * (double)sysconf(_SC_PAGESIZE) : 0;
}

/* ---- lines ---- */

/* The seconds to the end at this process's own rate; 0: done, or not known, as when the last prompt
 * takes longer than others. */
static double seconds_left(double now) {
    const uint64_t fresh = job.done - job.resumed;
    if (fresh == 0 || job.done >= job.total) { return 0; }
    /* counted from when the last prompt ended, so that it falls while the next one is in hand */
    const double each = (job.prompt_s - job.start_s) / (double)fresh,
                 more = (double)(job.total - job.done);
    return fmax(each * more - (now - job.prompt_s), each * (more - 1));
}

/* The bytes that all prompts will take, judged by the finished ones; 0: not known. */
static double disk_forecast(void) {
    return job.done > 0 ? (double)job.bytes / (double)job.done * (double)job.total : 0;
}

static double disk_free(void) {
    struct statvfs info;
    return job.bytes > 0 && statvfs(job.folder, &info) == 0
               ? (double)info.f_bavail * (double)info.f_frsize
               : INFINITY;
}

/* Writes what a short line leaves out: the time of the end, disk, memory. */
static void say_rest(double now) {
    const double left = seconds_left(now), room = disk_free(), memory = own_memory();
    if (left > 0 && left < 1e9) {
        const time_t end = time(NULL) + (time_t)left;
        struct tm local;
        char text[32];
        strftime(text, sizeof text, "%Y-%m-%d %H:%M", localtime_r(&end, &local));
        fprintf(stderr, " (%s)", text);
    }
    if (job.bytes > 0) {
        fprintf(stderr, ", %.1f of about %.1f MB written", (double)job.bytes / 1e6,
                disk_forecast() / 1e6);
        if (isfinite(room)) { fprintf(stderr, ", %.1f GB free", room / 1e9); }
    }
    if (memory > 0) { fprintf(stderr, ", memory %.1f MB", memory / 1e6); }
    fputc('\n', stderr);
}

/* Writes how far the prompt after the finished ones is, " (the next: 26 rollouts done in 12 s)", if
 * anything is known of it. layers: those that were passed in place of units; 0: units count. */
static void say_next(double now, double layers) {
    const double since = now - job.prompt_s;
    const bool slow = job.done < job.total && since >= FIRST_S, any = job.inside > 0 || layers > 0;
    if (!slow && !any) { return; }
    fputs(" (the next: ", stderr);
    if (job.inside > 0) {
        fprintf(stderr, "%llu %s done", (unsigned long long)job.inside, job.unit);
    } else if (layers > 0) {
        fprintf(stderr, "%.1f layers done", layers);
    }
    if (slow) { fprintf(stderr, "%s%.0f s", any ? " in " : "", since); }
    fputc(')', stderr);
}

/* Shows the line. whole: it is a lasting line with everything that is known. */
static void show_line(double now, bool whole) {
    const uint64_t units = job.units + job.inside;
    /* as long as there are no units */
    const double layers = units == 0 && job.done < job.total ? job.layers : 0,
                 rate = ((double)units + layers) / (now - job.start_s), left = seconds_left(now);
    if (is_quiet) { return; }
    fprintf(stderr, "%s%s: %llu of %llu %s", job.terminal ? "\r\033[K" : "", job.what,
            (unsigned long long)job.done, (unsigned long long)job.total, job.things);
    say_next(now, layers);
    if (isfinite(rate) && rate > 0) {
        fprintf(stderr, ", %.*f %s/s", rate < 0.1 ? 3 : 1, rate, layers > 0 ? "layers" : job.unit);
    }
    if (left > 0) {
        fprintf(stderr, ", ETA %.0f:%02.0f:%02.0f", floor(left / 3600),
                floor(fmod(left, 3600) / 60), floor(fmod(left, 60)));
    }
    if (whole) { say_rest(now); }
    fflush(stderr);
    job.redraw_s = now + REDRAW_S;
}

static void warn_of_disk(void) {
    const double room = disk_free(), more = disk_forecast() - (double)job.bytes;
    if (more > room) {
        ckvc_warn("%s: about %.1f MB more will be written, and %.1f MB are free in %s; make room: "
                  "what is done stays, and --resume goes on behind it",
                  job.what, more / 1e6, room / 1e6, job.folder);
    }
}

/* Shows lines when they are due. The first lasting line comes after FIRST_S, or on a terminal after
 * MOST_S; each next one when the job is twice as old, but at most MOST_S later. */
static void show_when_due(void) {
    const double now = ckvc_now_s();
    if (!job.running) { return; }
    if (now >= job.line_s) {
        show_line(now, true);
        warn_of_disk();
        job.line_s = now + fmin(fmax(now - job.start_s, FIRST_S), MOST_S);
    } else if (job.terminal && now >= job.redraw_s) {
        show_line(now, false);
    }
}

void ckvc_progress_quiet(bool quiet) { is_quiet = quiet; }

void ckvc_progress_start(const char *what, const char *things, const char *unit, uint64_t total,
                         uint64_t already) {
    const char *term = getenv("TERM");
    memset(&job, 0, sizeof job);
    job.running = true;
    job.terminal = isatty(STDERR_FILENO) && !(term && strcmp(term, "dumb") == 0);
    if (stages > 1) {
        snprintf(job.what, sizeof job.what, "step %u of %u, %s", stage, stages, what);
    } else {
        snprintf(job.what, sizeof job.what, "%s", what);
    }
    snprintf(job.things, sizeof job.things, "%s", things);
    snprintf(job.unit, sizeof job.unit, "%s", unit);
    job.total = total;
    job.done = job.resumed = already;
    job.start_s = job.prompt_s = ckvc_now_s();
    job.line_s = job.start_s + (job.terminal ? MOST_S : FIRST_S);
    show_when_due();
}

void ckvc_progress_stage(unsigned step, unsigned of) {
    stage = step;
    stages = of;
}

void ckvc_progress_update(uint64_t done, uint64_t units) {
    if (done > job.done) { job.prompt_s = ckvc_now_s(); }
    job.done = done;
    job.units = units;
    job.inside = 0;
    show_when_due();
}

void ckvc_progress_step(uint64_t units) {
    job.inside += units;
    show_when_due();
}

void ckvc_progress_layer(double share) {
    job.layers += share;
    show_when_due();
}

void ckvc_progress_disk(const char *path, uint64_t bytes) {
    snprintf(job.folder, sizeof job.folder, "%s", path);
    job.bytes = bytes;
}

void ckvc_progress_clear(void) {
    if (job.running && job.terminal && !is_quiet) { fputs("\r\033[K", stderr); }
    job.running = false;
}

void ckvc_progress_finish(void) {
    job.inside = 0;
    if (job.running) { show_line(ckvc_now_s(), true); }
    job.running = false;
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
static double deadline_s = INFINITY;

static void on_signal(int sig) {
    static const char first[] =
        "\nckvc: stopping after the prompt in hand; once more to stop now\n";
    if (requests > 0 && sig == SIGHUP) { return; } /* a closing terminal sends it more than once */
    if (requests++ > 0) { _exit(130); }
    /* write() is async-signal-safe; nothing can be done if it fails. */
    const ssize_t ignored = write(STDERR_FILENO, first, sizeof first - 1);
    (void)ignored;
}

void ckvc_stop_install(double limit_s) {
    deadline_s = limit_s > 0 ? ckvc_now_s() + limit_s : INFINITY;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    /* a program started with nohup goes on ignoring it */
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
        sigaction(SIGHUP, &action, NULL);
    }
}

bool ckvc_stop_requested(void) { return requests > 0 || ckvc_now_s() > deadline_s; }
