/* The words that tasks are made of, and the text in which needles lie. See lexicon.h. */
#include "judge/tasks/lexicon.h"

#include <stdio.h>

#include "lib/base/memory.h"
#include "lib/base/files.h"
#include "lib/base/utf8.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const nouns[] = {
    "barrel", "banner",  "beacon",  "basket", "beetle",   "blanket", "bottle",  "branch",
    "bridge", "brush",   "bucket",  "button", "cabin",    "camel",   "candle",  "canoe",
    "carpet", "castle",  "cellar",  "chain",  "chimney",  "circle",  "cloud",   "coin",
    "comet",  "copper",  "cradle",  "crown",  "curtain",  "desert",  "dolphin", "drum",
    "falcon", "dagger",  "feather", "fence",  "ferry",    "flute",   "forest",  "fountain",
    "garden", "glacier", "glove",   "guitar", "hammer",   "helmet",  "hornet",  "hamlet",
    "jacket", "jungle",  "kettle",  "ladder", "lantern",  "lemon",   "lizard",  "magnet",
    "marble", "meadow",  "mirror",  "monkey", "mountain", "needle",  "nutmeg",  "nettle",
    "napkin", "paddle",  "parrot",  "pebble", "pencil",   "pepper",  "pillow",  "planet",
    "plough", "pocket",  "puddle",  "quilt",  "rabbit",   "ribbon",  "river",   "rocket",
    "saddle", "sailor",  "sandal",  "shovel", "signal",   "spider",  "sponge",  "statue",
    "temple", "thunder", "ticket",  "tower",  "tunnel",   "turtle",  "turnip",  "valley",
    "velvet", "violin",  "wagon",   "walnut", "whistle",  "window",  "winter",  "zebra"};

static const char *const adjectives[] = {
    "bronze", "brisk",   "bitter",  "bold",    "brave",   "bright",  "calm",    "clever",
    "cold",   "crooked", "curious", "dusty",   "damp",    "deep",    "faded",   "famous",
    "fierce", "foggy",   "gentle",  "golden",  "grey",    "happy",   "heavy",   "hidden",
    "hollow", "humble",  "crisp",   "jolly",   "late",    "little",  "lonely",  "loud",
    "lucky",  "muddy",   "narrow",  "noble",   "patient", "plain",   "proud",   "purple",
    "quiet",  "rapid",   "rusty",   "scarlet", "silent",  "silver",  "slender", "small",
    "smooth", "solid",   "sour",    "steep",   "stormy",  "strange", "sturdy",  "sunny",
    "sweet",  "tall",    "tidy",    "vast",    "warm",    "weary",   "wild",    "yellow"};

static const char *const persons[] = {
    "baker",   "carpenter", "cook",      "doctor",   "driver",   "farmer", "fisherman", "gardener",
    "guard",   "judge",     "librarian", "mason",    "merchant", "miller", "painter",   "pilot",
    "plumber", "postman",   "potter",    "shepherd", "singer",   "tailor", "teacher",   "weaver"};

static const char *const places[] = {
    "attic",   "bakery", "barn",   "beach",   "church",  "corner",   "courtyard", "dairy",
    "factory", "field",  "gate",   "harbour", "hill",    "hospital", "inn",       "kitchen",
    "library", "market", "mill",   "museum",  "office",  "park",     "pier",      "quarry",
    "school",  "shop",   "square", "stable",  "station", "theatre",  "village",   "workshop"};

uint32_t lexicon_nouns(void) { return COUNT(nouns); }
const char *lexicon_noun(uint32_t i) { return nouns[i]; }

/* Does the beginning of a shuffle. */
void lexicon_draw(ckvc_rng *rng, uint32_t of, uint32_t *out, uint32_t n) {
    CKVC_AUTO_FREE uint32_t *all = ckvc_alloc(of, sizeof *all);
    for (uint32_t i = 0; i < of; i++) { all[i] = i; }
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t k = i + (uint32_t)ckvc_rng_below(rng, of - i);
        out[i] = all[k];
        all[k] = all[i];
    }
}

uint32_t lexicon_names(void) { return COUNT(adjectives) * COUNT(nouns); }
void lexicon_name(uint32_t i, char out[LEXICON_NAME_BYTES]) {
    snprintf(out, LEXICON_NAME_BYTES, "%s-%s", adjectives[i / COUNT(nouns)],
             nouns[i % COUNT(nouns)]);
}

void lexicon_number(ckvc_rng *rng, char out[LEXICON_NAME_BYTES]) {
    snprintf(out, LEXICON_NAME_BYTES, "%u", 1000000 + (unsigned)ckvc_rng_below(rng, 9000000));
}

void lexicon_uuid(ckvc_rng *rng, char out[LEXICON_NAME_BYTES]) {
    const uint64_t high = (ckvc_rng_u64(rng) & ~0xF000ull) | 0x4000;
    const uint64_t low = (ckvc_rng_u64(rng) & ~(3ull << 62)) | 2ull << 62;
    snprintf(out, LEXICON_NAME_BYTES, "%08x-%04x-%04x-%04x-%012llx", (unsigned)(high >> 32),
             (unsigned)(high >> 16 & 0xFFFF), (unsigned)(high & 0xFFFF), (unsigned)(low >> 48),
             (unsigned long long)(low & 0xFFFFFFFFFFFF));
}

enum { MAX_FILE = 256 << 20, LONG_SENTENCE = 400 };

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Returns the end of the sentence that begins at `at`, where there is no white space. */
static size_t sentence_end(const char *text, size_t n, size_t at) {
    for (size_t i = at; i < n; i++) {
        const bool space_next = i + 1 == n || is_space(text[i + 1]);
        if (space_next && strchr(".!?", text[i]) && text[i]) { return i + 1; }
        if (is_space(text[i]) &&
            (i - at >= LONG_SENTENCE || (text[i] == '\n' && i + 1 < n && text[i + 1] == '\n'))) {
            return i;
        }
    }
    return n;
}

ckvc_status haystack_read(const char *path, haystack *out, ckvc_err *err) {
    size_t size = 0, room = 0;
    CKVC_TRY(ckvc_file_read(path, MAX_FILE, &out->text, &size, err));
    const size_t good = ckvc_utf8_check(out->text, size);
    CKVC_REFUSE_IF(good < size, err, path, "byte %zu is not UTF-8; want a text", good);
    CKVC_REFUSE_IF(strlen(out->text) < size, err, path, "byte %zu is a NUL; want a text",
                   strlen(out->text));
    for (size_t at = 0; at < size;) {
        if (is_space(out->text[at])) {
            at++;
            continue;
        }
        CKVC_GROW(out->ends, room, out->n + 1);
        at = out->ends[out->n++] = sentence_end(out->text, size, at);
    }
    CKVC_REFUSE_IF(out->n == 0, err, path, "nothing but white space; want a text of sentences");
    return CKVC_OK;
}

void haystack_fini(haystack *h) { CKVC_FREE(h->text, h->ends); }

haystack_walk haystack_begin(const haystack *hay, ckvc_rng *rng) {
    return (haystack_walk){hay, hay->n ? ckvc_rng_below(rng, hay->n) : 0};
}

/* %a stands for an adjective, %n for a noun, %p for a person, %l for a place. */
static const char *const forms[] = {
    "The %a %n stood near the %l all day.",
    "Nobody in the %l had noticed the %n before noon.",
    "A %p walked past the %l with a %a %n under one arm.",
    "It rained on the %l, and the %p waited indoors.",
    "The %p liked the %n better than anything else in the %l.",
    "Behind the %l there was a %a path that led to the %n.",
    "When the bell rang, the %p put the %n back on its shelf.",
    "Some said the %l was too %a for visitors.",
    "Every spring the %p paints the door of the %l again.",
    "There was not much to see in the %l except a %a %n.",
    "The %p and the %p talked about the weather for a while.",
    "Two children carried a %n from the %l to the river bank.",
    "The road by the %l is %a after a long summer.",
    "Later that week the %p mended the %n and went home.",
    "A %a wind came up and shook the windows of the %l.",
    "The %p had never cared much for the %n.",
    "By evening the %l was %a and the lamps were lit.",
    "Someone left a %n on the steps of the %l.",
    "The old %p remembered a %a morning at the %l.",
    "They shared bread and soup in the %l until it grew dark.",
    "A drawing of a %n hung on the wall of the %l.",
    "The %p counted the chairs twice and locked the %l.",
    "From the %l one can hear the %n when the air is still.",
    "Most of the guests had gone by the time the %p arrived.",
};

#define DRAWN(list, rng) (list)[ckvc_rng_below(rng, COUNT(list))]

static void made_up_sentence(ckvc_rng *rng, ckvc_buffer *out) {
    for (const char *c = DRAWN(forms, rng); *c; c++) {
        if (*c != '%') {
            ckvc_buffer_u8(out, (uint8_t)*c);
            continue;
        }
        switch (*++c) {
        case 'a': ckvc_buffer_text(out, DRAWN(adjectives, rng)); break;
        case 'p': ckvc_buffer_text(out, DRAWN(persons, rng)); break;
        case 'l': ckvc_buffer_text(out, DRAWN(places, rng)); break;
        default: ckvc_buffer_text(out, DRAWN(nouns, rng));
        }
    }
}

void haystack_sentence(haystack_walk *walk, ckvc_rng *rng, ckvc_buffer *out) {
    const haystack *hay = walk->hay;
    if (!hay->n) {
        made_up_sentence(rng, out);
        return;
    }
    const size_t i = walk->next;
    walk->next = (i + 1) % hay->n;
    size_t at = i ? hay->ends[i - 1] : 0;
    while (is_space(hay->text[at])) { at++; }
    for (; at < hay->ends[i]; at++) {
        const char c = hay->text[at];
        if (!is_space(c)) {
            ckvc_buffer_u8(out, (uint8_t)c);
        } else if (!is_space(hay->text[at - 1])) {
            ckvc_buffer_u8(out, ' ');
        }
    }
}
