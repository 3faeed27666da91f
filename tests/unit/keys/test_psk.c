/* Derived keys, against values that Python's hmac and hashlib give for the same definition. */
#include "keys/psk.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static const struct ct_key key = {.secret = "0123456789abcdef0123456789abcdeA"};
static const struct ct_openssl *ssl;

static void set_up(void)
{
    cr_assert_eq(ct_openssl_get(&ssl, NULL), 0);
}

TestSuite(psk, .init = set_up, .timeout = 10);

Test(psk, tags_and_key_are_hkdf_of_the_secret)
{
    char key_tag[CT_PSK_TAG], job_tag[CT_PSK_TAG], text[2 * CT_PSK_BYTES + 1];
    unsigned char derived[CT_PSK_BYTES];

    ct_psk_key_tag(ssl, &key, key_tag);
    ct_psk_job_tag(ssl, "digits", job_tag);
    cr_assert_str_eq(key_tag, "cb58a09407b69b1b");
    cr_assert_str_eq(job_tag, "cc6b6bad31a0ff4d");
    ct_psk_derive(ssl, &key, key_tag, job_tag, derived);
    for (int i = 0; i < CT_PSK_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", derived[i]);
    cr_assert_str_eq(text, "9803f822568e0e50cbe3cad5fb78f6ab7b96df2d902082036404f4a831ef189b");
}

Test(psk, a_name_parses_to_its_tags_and_nothing_else_does)
{
    char name[CT_PSK_NAME], key_tag[CT_PSK_TAG], job_tag[CT_PSK_TAG];

    ct_psk_name("cb58a09407b69b1b", "cc6b6bad31a0ff4d", name);
    cr_assert_str_eq(name, "ctrun/1 agent cb58a09407b69b1b cc6b6bad31a0ff4d");
    size_t size = strlen(name);
    cr_assert(ct_psk_parse(name, size, key_tag, job_tag));
    cr_assert_str_eq(key_tag, "cb58a09407b69b1b");
    cr_assert_str_eq(job_tag, "cc6b6bad31a0ff4d");
    cr_assert_not(ct_psk_parse(name, size - 1, key_tag, job_tag));
    cr_assert_not(ct_psk_parse(name, size + 1, key_tag, job_tag));
    for (size_t i = 0; i < size; i++) {
        char kept = name[i];
        name[i] = '~';
        cr_assert_not(ct_psk_parse(name, size, key_tag, job_tag), "byte %zu", i);
        name[i] = kept;
    }
}
