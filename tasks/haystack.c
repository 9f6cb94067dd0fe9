#include "tasks/haystack.h"

#include "lib/base/files.h"
#include "lib/base/utf8.h"
#include "tasks/lexicon.h"

enum { MAX_FILE = 256 << 20, LONG_SENTENCE = 400 };

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* The end of the sentence that begins at `at`, where no white space is. */
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

/* %a adjective, %n noun, %p person, %l place. */
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

static void made_up(ckvc_rng *rng, ckvc_buffer *out) {
    for (const char *c = forms[ckvc_rng_below(rng, sizeof forms / sizeof *forms)]; *c; c++) {
        if (*c != '%') {
            ckvc_buffer_u8(out, (uint8_t)*c);
            continue;
        }
        switch (*++c) {
        case 'a': ckvc_buffer_text(out, lexicon_adjective(rng)); break;
        case 'p': ckvc_buffer_text(out, lexicon_person(rng)); break;
        case 'l': ckvc_buffer_text(out, lexicon_place(rng)); break;
        default:
            ckvc_buffer_text(out, lexicon_noun((uint32_t)ckvc_rng_below(rng, lexicon_nouns())));
        }
    }
}

void haystack_sentence(haystack_walk *walk, ckvc_rng *rng, ckvc_buffer *out) {
    const haystack *hay = walk->hay;
    if (!hay->n) {
        made_up(rng, out);
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
