/* The words of a subcommand that has few options: a table of them, and what stands alone.
 *
 *     ctrun sample runs/novel --tokens 100 --seed=7 */
#ifndef CT_CTRUN_WORDS_H
#define CT_CTRUN_WORDS_H

#include "base/error.h"

#include <stddef.h>
#include <stdio.h>

enum ct_word_type {
    CT_WORD_TEXT,   /* const char * */
    CT_WORD_TEXTS,  /* struct ct_word_texts; may be given several times */
    CT_WORD_NUMBER, /* int64_t */
    CT_WORD_REAL,   /* double */
    CT_WORD_FLAG    /* bool; takes no value */
};

enum { CT_WORD_TEXTS_MAX = 64 };

struct ct_word_texts {
    const char *at[CT_WORD_TEXTS_MAX];
    int count;
};

struct ct_word {
    const char *name; /* "tokens" for --tokens N and --tokens=N; "_" and "-" are alike */
    enum ct_word_type type;
    void *to;
    const char *help;
};

/* Read `argv` (without the command's name): options into their places, the rest, at most `room`
 * words, into `places`, whose number becomes *ret_count. Behind "--" nothing is an option.
 * CT_EUSAGE names the word. */
int ct_words_read(const struct ct_word *words, size_t count, int argc, char *const *argv,
                  const char **places, int room, int *ret_count, struct ct_error *err);

/* The table, an option a line. */
void ct_words_help(const struct ct_word *words, size_t count, FILE *to);

#endif
