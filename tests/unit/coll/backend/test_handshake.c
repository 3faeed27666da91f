/* What two ranks say before their connection carries data: every byte of it counts. */
#include "backend/tcp/tcp_handshake.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(handshake, .timeout = 10);

static const unsigned char SECRET[CT_SECRET_BYTES] = {7, [31] = 9};
static const struct ct_handshake GROUP = {SECRET, 1, 2, 3};
static const struct ct_connection_id ID = {.from = 5, .to = 4, .connection = 1};

static unsigned char hello[CT_HELLO_BYTES], answer[CT_ANSWER_BYTES], confirm[CT_CONFIRM_BYTES];

static void talk(unsigned char diallers_nonce, unsigned char listeners_nonce)
{
    unsigned char nonce[CT_NONCE_BYTES] = {diallers_nonce};

    ct_hello_write(&GROUP, ID, nonce, hello);
    nonce[0] = listeners_nonce;
    ct_answer_write(&GROUP, hello, nonce, answer);
    ct_confirm_write(&GROUP, hello, answer, confirm);
}

Test(handshake, members_believe_one_another)
{
    struct ct_connection_id id;

    talk(1, 2);
    cr_assert(ct_hello_read(&GROUP, hello, &id));
    cr_assert(id.from == 5 && id.to == 4 && id.connection == 1);
    cr_assert(ct_answer_is(&GROUP, hello, answer));
    cr_assert(ct_confirm_is(&GROUP, hello, answer, confirm));
}

Test(handshake, no_bit_can_be_changed)
{
    struct ct_connection_id id;

    talk(1, 2);
    for (int bit = 0; bit < CT_HELLO_BYTES * 8; bit++) {
        hello[bit / 8] ^= (unsigned char)(1 << bit % 8);
        cr_assert_not(ct_hello_read(&GROUP, hello, &id), "bit %d of HELLO", bit);
        hello[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    for (int bit = 0; bit < CT_ANSWER_BYTES * 8; bit++) {
        answer[bit / 8] ^= (unsigned char)(1 << bit % 8);
        cr_assert_not(ct_answer_is(&GROUP, hello, answer), "bit %d of ANSWER", bit);
        answer[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    for (int bit = 0; bit < CT_CONFIRM_BYTES * 8; bit++) {
        confirm[bit / 8] ^= (unsigned char)(1 << bit % 8);
        cr_assert_not(ct_confirm_is(&GROUP, hello, answer, confirm), "bit %d of CONFIRM", bit);
        confirm[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
}

Test(handshake, what_was_said_on_one_connection_is_of_no_use_on_another)
{
    unsigned char old_hello[CT_HELLO_BYTES], old_answer[CT_ANSWER_BYTES];
    unsigned char old_confirm[CT_CONFIRM_BYTES];

    talk(1, 2);
    memcpy(old_hello, hello, sizeof hello);
    memcpy(old_answer, answer, sizeof answer);
    memcpy(old_confirm, confirm, sizeof confirm);
    talk(1, 3); /* HELLO is said again; the listener draws another nonce */
    cr_assert_not(ct_confirm_is(&GROUP, hello, answer, old_confirm));
    talk(4, 2); /* an old ANSWER for who says a new HELLO */
    cr_assert_not(ct_answer_is(&GROUP, hello, old_answer));
    cr_assert_not(ct_confirm_is(&GROUP, hello, answer, old_confirm));
}

Test(handshake, no_secret_and_no_half_of_it_is_on_the_wire)
{
    talk(1, 2);
    for (size_t half = 0; half < CT_SECRET_BYTES; half += CT_SECRET_BYTES / 2) {
        cr_assert_null(memmem(hello, sizeof hello, SECRET + half, CT_SECRET_BYTES / 2));
        cr_assert_null(memmem(answer, sizeof answer, SECRET + half, CT_SECRET_BYTES / 2));
        cr_assert_null(memmem(confirm, sizeof confirm, SECRET + half, CT_SECRET_BYTES / 2));
    }
}
