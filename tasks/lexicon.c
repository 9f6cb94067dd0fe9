#include "tasks/lexicon.h"

#include <stdio.h>
#include "lib/base/memory.h"

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
const char *lexicon_adjective(ckvc_rng *rng) {
    return adjectives[ckvc_rng_below(rng, COUNT(adjectives))];
}
const char *lexicon_person(ckvc_rng *rng) { return persons[ckvc_rng_below(rng, COUNT(persons))]; }
const char *lexicon_place(ckvc_rng *rng) { return places[ckvc_rng_below(rng, COUNT(places))]; }

/* The beginning of a shuffle. */
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
