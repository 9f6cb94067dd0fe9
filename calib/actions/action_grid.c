/* Action grids: see action_grid.h. */
#include "calib/actions/action_grid.h"

#include <string.h>

#include "formats/side/side.h"

/* Decimals are counted in units of 10^-9: integers, and divided by UNIT the nearest double. */
enum { PLACES_MAX = 9, UNIT = 1000000000 };

/* Digits with at most one point, up to `end`; nothing else, no sign, no exponent. -1: not that, or
 * far too large. */
static int64_t read_decimal(const char *text, const char *end) {
    int64_t units = 0;
    int places = 0;
    bool point = false, digits = false;
    for (; text < end; text++) {
        if (*text == '.' && !point) {
            point = true;
            continue;
        }
        if (*text < '0' || *text > '9' || places == PLACES_MAX) { return -1; }
        units = units * 10 + (*text - '0');
        if (units > (int64_t)ACTION_GRID_HIGH * UNIT) { return -1; }
        places += point;
        digits = true;
    }
    for (; places < PLACES_MAX; places++) { units *= 10; }
    return digits ? units : -1;
}

/* "a" or "a:b:step" -> part: lowest, highest, step (1 for a single value). */
static bool read_item(const char *item, int64_t part[3]) {
    int n = 0;
    for (const char *from = item;; n++) {
        const char *colon = strchr(from, ':'), *end = colon ? colon : from + strlen(from);
        if (n == 3 || (part[n] = read_decimal(from, end)) < 0) { return false; }
        if (!colon) { break; }
        from = colon + 1;
    }
    if (n == 0) {
        part[1] = part[0];
        part[2] = 1;
    }
    return n != 1 && part[2] > 0 && part[1] >= part[0] &&
           part[1] <= (int64_t)ACTION_GRID_HIGH * UNIT;
}

void action_grid_default(ckvc_side side, action_grid *out) {
    const side_kind *kind = side_kind_of(side);
    for (out->n = 0; out->n < kind->n_default; out->n++) {
        out->values[out->n] = kind->default_action((int)out->n);
    }
}

ckvc_status action_grid_parse(ckvc_side side, const char *const *items, size_t n, action_grid *out,
                              ckvc_err *err) {
    const side_kind *kind = side_kind_of(side);
    const char *name = kind->grid_option;
    out->n = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t part[3];
        CKVC_FAIL_IF(!read_item(items[i], part), err, CKVC_E_USAGE,
                     "%s: got '%s', wanted decimals from 0 to %d with at most %d places, "
                     "or lowest:highest:step as in %s",
                     name, items[i], ACTION_GRID_HIGH, PLACES_MAX, kind->grid_text);
        const int64_t lo = part[0], hi = part[1], step = part[2];
        CKVC_FAIL_IF((hi - lo) % step, err, CKVC_E_USAGE,
                     "%s: the steps of '%s' end at %.10g, not at %.10g", name, items[i],
                     (double)(hi - (hi - lo) % step) / UNIT, (double)hi / UNIT);
        CKVC_FAIL_IF((hi - lo) / step >= (int64_t)(ACTION_GRID_MAX - out->n), err, CKVC_E_USAGE,
                     "%s: '%s' makes more than %d actions", name, items[i], ACTION_GRID_MAX);
        for (int64_t k = 0; k <= (hi - lo) / step; k++) {
            const double v = (double)(lo + k * step) / UNIT;
            CKVC_FAIL_IF(
                out->n > 0 && (float)v <= (float)out->values[out->n - 1], err, CKVC_E_USAGE,
                "%s: %.10g stands after %.10g; values ascend, by more than float32 rounds away",
                name, v, out->values[out->n - 1]);
            out->values[out->n++] = v;
        }
    }
    CKVC_FAIL_IF(out->n == 0, err, CKVC_E_USAGE,
                 "%s: no value; wanted lowest:highest:step, or a list", name);
    CKVC_FAIL_IF(
        side_neutral_of(side, out->values, out->n) < 0, err, CKVC_E_USAGE,
        "%s: 1 is not in it, the weight that heads start from and that leaves them as they are",
        name);
    return CKVC_OK;
}
