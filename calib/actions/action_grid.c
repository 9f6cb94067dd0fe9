/* Action grids: see action_grid.h. */
#include "calib/actions/action_grid.h"

#include <string.h>

#include "formats/side/side.h"

/* A decimal as units / 10^places. */
typedef struct decimal {
    int64_t units;
    int places;
} decimal;

enum { PLACES_MAX = 9 };

static int64_t power_of_ten(int n) {
    int64_t p = 1;
    for (; n > 0; n--) { p *= 10; }
    return p;
}

/* Digits with at most one point, up to `end`; nothing else, no sign, no exponent. */
static bool read_decimal(const char *text, const char *end, decimal *out) {
    bool point = false, digits = false;
    *out = (decimal){0, 0};
    for (; text < end; text++) {
        if (*text == '.' && !point) {
            point = true;
            continue;
        }
        if (*text < '0' || *text > '9' || (point && out->places == PLACES_MAX)) { return false; }
        out->units = out->units * 10 + (*text - '0');
        out->places += point;
        digits = true;
        if (out->units > ACTION_GRID_HIGH * power_of_ten(PLACES_MAX)) {
            return false; /* too large whatever follows, and far from an overflow */
        }
    }
    return digits;
}

static int64_t at_places(decimal d, int places) {
    return d.units * power_of_ten(places - d.places);
}

/* "a" or "a:b:step" -> lowest, highest, step in units of 10^-places. step is 1 for a single value.
 */
static bool read_item(const char *item, int64_t *lo, int64_t *hi, int64_t *step, int *places) {
    decimal part[3];
    int n = 0;
    for (const char *from = item;; n++) {
        const char *colon = strchr(from, ':'), *end = colon ? colon : from + strlen(from);
        if (n == 3 || !read_decimal(from, end, &part[n])) { return false; }
        if (!colon) { break; }
        from = colon + 1;
    }
    if (n == 1) { return false; }
    *places = 0;
    for (int i = 0; i <= n; i++) { *places = part[i].places > *places ? part[i].places : *places; }
    *lo = at_places(part[0], *places);
    *hi = n ? at_places(part[1], *places) : *lo;
    *step = n ? at_places(part[2], *places) : 1;
    return *step > 0 && *hi >= *lo && *hi <= ACTION_GRID_HIGH * power_of_ten(*places);
}

void action_grid_default(ckvc_side side, action_grid *out) {
    const side_kind *kind = side_kind_of(side);
    for (out->n = 0; out->n < kind->n_default; out->n++) {
        out->values[out->n] = kind->default_action((int)out->n);
    }
}

bool action_grid_is_default(ckvc_side side, const double *values, uint32_t n) {
    action_grid usual;
    action_grid_default(side, &usual);
    return n == usual.n && memcmp(values, usual.values, n * sizeof *values) == 0;
}

ckvc_status action_grid_parse(ckvc_side side, const char *const *items, size_t n, action_grid *out,
                              ckvc_err *err) {
    const side_kind *kind = side_kind_of(side);
    const char *name = kind->grid_option;
    out->n = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t lo, hi, step;
        int places;
        CKVC_FAIL_IF(!read_item(items[i], &lo, &hi, &step, &places), err, CKVC_E_USAGE,
                     "%s: got '%s', wanted decimals from 0 to %d with at most %d places, "
                     "or lowest:highest:step as in %s",
                     name, items[i], ACTION_GRID_HIGH, PLACES_MAX, kind->grid_text);
        const double unit = (double)power_of_ten(places);
        CKVC_FAIL_IF((hi - lo) % step, err, CKVC_E_USAGE,
                     "%s: the steps of '%s' end at %.10g, not at %.10g", name, items[i],
                     (double)(hi - (hi - lo) % step) / unit, (double)hi / unit);
        CKVC_FAIL_IF((hi - lo) / step >= (int64_t)(ACTION_GRID_MAX - out->n), err, CKVC_E_USAGE,
                     "%s: '%s' makes more than %d actions", name, items[i], ACTION_GRID_MAX);
        for (int64_t k = 0; k <= (hi - lo) / step; k++) {
            const double v =
                (double)(lo + k * step) / unit; /* both exact: the nearest double to the decimal */
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
