/* Reads a table and prints what it keeps of a made-up prefill of 64 tokens, whose attention is
 * spread evenly. Put your engine's rows (or queries), keys and values in their place, and this is
 * all that there is to do. It compiles as C and as C++. HEAD_DIM is the length of the model's keys.
 * Build and run:
 *
 *   cc keep_set.c $(pkg-config --cflags --libs ckvc_policy) -o keep_set
 *   ./keep_set table.ckvt HEAD_DIM */
#include <ckvc_policy.h>
#include <stdio.h>
#include <stdlib.h>

enum { T = 64, MOST_DIM = 1024 };

static float rows[T][T];          /* of one query head, after the softmax */
static float cache[T * MOST_DIM]; /* keys and values of one KV head, [T][head_dim] */

static void make_up(uint32_t head_dim) {
    for (uint32_t i = 0; i < T; i++) {
        for (uint32_t t = 0; t <= i; t++) { rows[i][t] = 1.0f / (float)(i + 1); }
    }
    for (uint32_t i = 0; i < T * head_dim; i++) { cache[i] = i % 5 ? 0.25f : -1.0f; }
}

/* Hands over the prefill, layer by layer, each head in one tile; an engine may use smaller
 * tiles. */
static int hand_over(ckvc_prefill *p, const ckvc_geometry *m) {
    const uint32_t R = ckvc_prefill_rows(p); /* so many last rows are wanted; perhaps none */
    for (uint32_t l = 0; l < m->n_layers; l++) {
        for (uint32_t h = 0; R && h < m->n_query_heads; h++) {
            if (ckvc_prefill_attention(p, l, h, 0, R, rows[T - R])) { return -1; }
        }
        for (uint32_t g = 0; g < m->n_kv_heads; g++) {
            if (ckvc_prefill_cache(p, l, g, 0, T, cache, cache)) { return -1; }
        }
    }
    return ckvc_prefill_keep(p, 12.0); /* 12: the perplexity of the prompt's last tokens */
}

static void print_sets(const ckvc_prefill *p, const ckvc_geometry *m) {
    for (uint32_t l = 0; l < m->n_layers; l++) {
        for (uint32_t g = 0; g < m->n_kv_heads; g++) {
            uint32_t n;
            const uint32_t *set = ckvc_prefill_set(p, l, g, &n);
            printf("layer %u head %u keeps %u:", l, g, n);
            for (uint32_t i = 0; i < n; i++) { printf(" %u", set[i]); }
            printf("\n");
        }
    }
}

int main(int argc, char **argv) {
    ckvc_table *t;
    char message[256];
    const long head_dim = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    if (head_dim < 1 || head_dim > MOST_DIM) {
        fprintf(stderr, "usage: keep_set T.ckvt HEAD_DIM, which is 1 to %d\n", MOST_DIM);
        return 1;
    }
    if (ckvc_table_read(argv[1], &t, message, sizeof message)) {
        fprintf(stderr, "%s\n", message);
        return 1;
    }
    /* An engine gives its model's shape; here it is what the table says of its model. */
    ckvc_request r = {
        t,    {t->n_layers, t->n_query_heads, t->n_heads, (uint32_t)head_dim, NULL, 0.0, NULL},
        T,    0.25,
        NULL, NULL};
    make_up(r.model.head_dim);

    const size_t bytes = ckvc_prefill_bytes(&r);
    void *workspace = malloc(bytes);
    ckvc_prefill *p = ckvc_prefill_begin(workspace, bytes, &r, message, sizeof message);
    const int rc = !p || hand_over(p, &r.model);
    if (!p) {
        fprintf(stderr, "%s: %s\n", argv[1], message);
    } else if (rc) {
        fprintf(stderr, "%s: %s\n", argv[1], ckvc_prefill_message(p));
    } else {
        print_sets(p, &r.model);
    }
    free(workspace);
    ckvc_table_free(t);
    return rc;
}
