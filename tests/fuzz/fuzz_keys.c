/* Fuzz: a key ring's file, the name of a key that a client sends, and a token. What is taken is
 * what the ring says, and nothing is found that was not put there. */
#include "base/assert.h"
#include "keys/key_ring.h"
#include "keys/psk.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_ring(const char *text)
{
    struct ct_key_ring *ring = NULL;
    const struct ct_key *key, *found;
    struct ct_error err = {0};

    int code = ct_key_ring_parse(text, "ring", &ring, &err);
    if (code != 0) {
        CT_ASSERT(err.text[0] != '\0');
        return;
    }
    for (size_t i = 0; i < ct_key_ring_count(ring); i++) {
        const struct ct_grant *grant = ct_key_ring_at(ring, i, &key);
        char token[CT_KEY_TOKEN];

        CT_ASSERT(grant->role < CT_ROLES && grant->jobs[0] != '\0');
        CT_ASSERT(ct_key_ring_find(ring, grant->id, &found) == grant && found == key);
        CT_ASSERT(ct_key_ring_has(ring, grant));
        (void)ct_grant_may(grant, CT_RIGHT_JOIN, "night", 1000, NULL);
        code = ct_key_token(key, token, NULL);
        CT_ASSERT(code == 0 && ct_key_ring_find_token(ring, token, CT_KEY_TOKEN - 1) == grant);
    }
    ct_key_ring_unref(ring);
}

static void check_names(const char *text, size_t size)
{
    static const struct ct_key zero;
    static struct ct_key_ring *ring;
    char key_tag[CT_PSK_TAG], job_tag[CT_PSK_TAG], name[CT_PSK_NAME];

    if (ring == NULL && ct_key_ring_of(&zero, true, &ring, NULL) != 0)
        abort();
    CT_ASSERT(ct_key_ring_find_token(ring, text, size) == NULL);
    if (!ct_psk_parse(text, size, key_tag, job_tag))
        return;
    ct_psk_name(key_tag, job_tag, name);
    CT_ASSERT(strlen(name) == size && memcmp(name, text, size) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    CT_ASSERT(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    check_names(text, size);
    if (strlen(text) == size)
        check_ring(text);
    free(text);
    return 0;
}
