/* Fuzz: the extension pre_shared_key of a stranger's hello, in which a credential of munge may be.
 * What is found is one as munged makes it, and reads back from its identity. */
#include "base/assert.h"
#include "keys/psk_munge.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *credential)
{
    char name[CT_PSK_MUNGE], job[CT_PSK_TAG], again[CT_MUNGE_CREDENTIAL];
    size_t size = strlen(credential);

    CT_ASSERT(size > 7 && size < CT_MUNGE_CREDENTIAL);
    CT_ASSERT(memcmp(credential, "MUNGE:", 6) == 0 && credential[size - 1] == ':');
    CT_ASSERT(strpbrk(credential, " \n\"\\") == NULL);
    ct_psk_munge_name("0123456789abcdef", credential, name);
    CT_ASSERT(ct_psk_munge_parse(name, strlen(name), job, again));
    CT_ASSERT(strcmp(again, credential) == 0 && strcmp(job, "0123456789abcdef") == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char credential[CT_MUNGE_CREDENTIAL], job[CT_PSK_TAG];

    if (ct_psk_munge_find(data, size, credential))
        check(credential);
    if (ct_psk_munge_parse(data, size, job, credential)) {
        CT_ASSERT(strlen(job) == CT_PSK_TAG - 1);
        check(credential);
    }
    return 0;
}
