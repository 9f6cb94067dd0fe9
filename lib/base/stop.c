/* Stopping on request: see stop.h. */
#include "lib/base/stop.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

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
