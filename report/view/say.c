/* See say.h. */
#include "report/view/say.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/memory.h"

const char *say_list(const char *fmt, va_list args) {
    enum { SLOTS = 64 };
    static char *slots[SLOTS];
    static unsigned next;
    char *text = NULL;
    if (vasprintf(&text, fmt, args) < 0) { ckvc_out_of_memory(1, strlen(fmt)); }
    char **slot = &slots[next++ % SLOTS];
    free(*slot); /* only now: an argument may stand in it */
    return *slot = text;
}

const char *say(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    const char *text = say_list(fmt, args);
    va_end(args);
    return text;
}

const char *say_more(const char *list, const char *joint, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    const char *text = say_list(fmt, args);
    va_end(args);
    return say("%s%s%s", list, *list ? joint : "", text);
}

const char *say_fixed(double v, int decimals) {
    if (!isfinite(v)) { return SAY_UNDEFINED; }
    const char *digits = fabs(v) < 1e15 ? say("%.*f", decimals, v) : say("%.*g", decimals, v);
    if (digits[0] != '-') { return digits; }
    /* a minus sign proper, and none before zero */
    bool zero = strspn(digits + 1, "0.") == strlen(digits + 1);
    return say("%s%s", zero ? "" : "\u2212", digits + 1);
}

const char *say_signed(double v, int decimals) {
    return say(v > 0 && isfinite(v) ? "+%s" : "%s", say_fixed(v, decimals));
}

const char *say_share(double v) {
    return isfinite(v) ? say("%.*f%%", v > 0 && v < 0.1 ? 1 : 0, 100 * v) : SAY_UNDEFINED;
}

static const char *with_ends(double mean, double lo, double hi, int decimals,
                             const char *(*one)(double v, int decimals)) {
    if (!isfinite(mean)) { return SAY_UNDEFINED; }
    if (!isfinite(lo) || !isfinite(hi)) { return say("%s (no interval)", one(mean, decimals)); }
    return say("%s (%s to %s)", one(mean, decimals), one(lo, decimals), one(hi, decimals));
}

const char *say_interval(double mean, double lo, double hi, int decimals) {
    return with_ends(mean, lo, hi, decimals, say_signed);
}

const char *say_spread(double mean, double lo, double hi, int decimals) {
    return with_ends(mean, lo, hi, decimals, say_fixed);
}

const char *say_budget(double budget) {
    return budget < 1 ? say("%.4g%% of T", 100 * budget) : say("%g tokens", budget);
}

const char *say_few_refits(double n, bool brackets) {
    return n < SAY_REFITS ? say(brackets ? " (%.0f refits)" : ", %.0f refits", n) : "";
}
