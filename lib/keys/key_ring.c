/* See key_ring.h. */
#include "keys/key_ring_inner.h"

#include "base/assert.h"
#include "base/bytes.h"
#include "keys/certificates.h"
#include "keys/openssl.h"
#include "keys/psk.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FIELDS = 6, WORD = CT_GRANT_JOBS };

/* ---- rings ---- */

struct ct_key_ring *ct_key_ring_ref(struct ct_key_ring *ring)
{
    if (ring != NULL)
        ring->references++;
    return ring;
}

void ct_key_ring_unref(struct ct_key_ring *ring)
{
    if (ring == NULL || --ring->references > 0)
        return;
    if (ring->entries != NULL)
        explicit_bzero(ring->entries, ring->room * sizeof ring->entries[0]);
    free(ring->entries);
    ct_munge_lines_deinit(&ring->munge);
    ct_certificates_unref(ring->certificates);
    free(ring);
}

void ct_key_ring_set_certificates(struct ct_key_ring *ring, struct ct_certificates *certificates)
{
    struct ct_certificates *before = ring->certificates;

    ring->certificates = ct_certificates_ref(certificates);
    ct_certificates_unref(before);
}

struct ct_certificates *ct_key_ring_certificates(const struct ct_key_ring *ring)
{
    return ring != NULL ? ring->certificates : NULL;
}

static struct ct_key_ring *new_ring(size_t room)
{
    struct ct_key_ring *ring = calloc(1, sizeof *ring);

    if (ring == NULL)
        return NULL;
    ring->references = 1;
    ring->room = room;
    ring->entries = calloc(room + (room == 0), sizeof ring->entries[0]);
    if (ring->entries == NULL) {
        free(ring);
        return NULL;
    }
    return ring;
}

static int by_id(const void *left, const void *right)
{
    const struct ct_key_ring_entry *a = left, *b = right;

    return strcmp(a->grant.id, b->grant.id);
}

const struct ct_key_ring_entry *ct_key_ring_find_entry(const struct ct_key_ring *ring,
                                                       const char *id)
{
    struct ct_key_ring_entry wanted = {.grant = {.name = ""}};

    memcpy(wanted.grant.id, id, strnlen(id, sizeof wanted.grant.id - 1));
    return bsearch(&wanted, ring->entries, ring->count, sizeof wanted, by_id);
}

const struct ct_grant *ct_key_ring_find(const struct ct_key_ring *ring, const char *id,
                                        const struct ct_key **ret_key)
{
    const struct ct_key_ring_entry *entry = ct_key_ring_find_entry(ring, id);

    if (entry == NULL)
        return NULL;
    *ret_key = &entry->key;
    return &entry->grant;
}

size_t ct_key_ring_count(const struct ct_key_ring *ring)
{
    return ring->count;
}

const struct ct_grant *ct_key_ring_at(const struct ct_key_ring *ring, size_t index,
                                      const struct ct_key **ret_key)
{
    CT_ASSERT(index < ring->count);
    *ret_key = &ring->entries[index].key;
    return &ring->entries[index].grant;
}

const struct ct_grant *ct_key_ring_whole(const struct ct_key_ring *ring)
{
    const struct ct_key_ring_entry *entry =
        ring->is_of_one ? ct_key_ring_find_entry(ring, ring->whole) : NULL;

    return entry != NULL ? &entry->grant : NULL;
}

bool ct_key_ring_has(const struct ct_key_ring *ring, const struct ct_grant *grant)
{
    const struct ct_key_ring_entry *entry = ct_key_ring_find_entry(ring, grant->id);

    if (strcmp(grant->id, CT_MUNGE_ID) == 0)
        return ct_munge_lines_have(&ring->munge, grant);
    return entry != NULL && ct_grant_equal(&entry->grant, grant);
}

const struct ct_munge_lines *ct_key_ring_munge(const struct ct_key_ring *ring)
{
    return ct_munge_lines_any(&ring->munge) ? &ring->munge : NULL;
}

/* ---- of one key ---- */

/* Of munge's word nothing can be derived: it is another one for each link. */
static int demand_secret(const struct ct_key *key, struct ct_error *err)
{
    return key->kind == CT_KEY_SECRET
               ? 0
               : ct_error_set(err, CT_EUSAGE,
                              "\"munge:\" is no key of which another key or a token can be made: "
                              "they need a key file (ctrun key new FILE)");
}

int ct_key_derive(const struct ct_key *key, enum ct_role role, struct ct_key *ret_key,
                  struct ct_error *err)
{
    const struct ct_openssl *ssl = NULL;
    char label[64];
    int code = demand_secret(key, err);

    if (code == 0)
        code = ct_openssl_get(&ssl, err);
    if (code != 0)
        return code;
    *ret_key = (struct ct_key){.kind = CT_KEY_SECRET};
    int size = snprintf(label, sizeof label, "ctrun/1 role %s", ct_role_name(role));
    ct_openssl_hmac(ssl, key->secret, sizeof key->secret, label, (size_t)size, ret_key->secret);
    return 0;
}

int ct_key_token(const struct ct_key *key, char ret_token[CT_KEY_TOKEN], struct ct_error *err)
{
    static const char label[] = "ctrun/1 page token";
    const struct ct_openssl *ssl = NULL;
    unsigned char mac[CT_HMAC_BYTES];
    int code = demand_secret(key, err);

    if (code == 0)
        code = ct_openssl_get(&ssl, err);
    if (code != 0)
        return code;
    ct_psk_key_tag(ssl, key, ret_token);
    ret_token[CT_GRANT_ID - 1] = '-';
    ct_openssl_hmac(ssl, key->secret, sizeof key->secret, label, sizeof label - 1, mac);
    ct_put_hex(mac, sizeof mac, ret_token + CT_GRANT_ID);
    return 0;
}

const struct ct_grant *ct_key_ring_find_token(const struct ct_key_ring *ring, const char *token,
                                              size_t size)
{
    char id[CT_GRANT_ID], right[CT_KEY_TOKEN];

    if (size != CT_KEY_TOKEN - 1)
        return NULL;
    memcpy(id, token, sizeof id - 1);
    id[sizeof id - 1] = '\0';
    const struct ct_key_ring_entry *entry = ct_key_ring_find_entry(ring, id);
    if (entry == NULL || ct_key_token(&entry->key, right, NULL) != 0)
        return NULL;
    return ct_secret_equal(token, right, size) ? &entry->grant : NULL;
}

int ct_key_ring_of(const struct ct_key *key, bool roles, struct ct_key_ring **ret_ring,
                   struct ct_error *err)
{
    const struct ct_openssl *ssl = NULL;
    int code = ct_openssl_get(&ssl, err);
    struct ct_key_ring *ring = code == 0 ? new_ring(CT_ROLES) : NULL;

    if (code != 0)
        return code;
    if (ring == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for a key");
    if (key->kind != CT_KEY_SECRET) {
        if (key->kind == CT_KEY_MUNGE)
            ct_munge_lines_own(&ring->munge, key);
        else
            ct_key_ring_set_certificates(ring, key->certificates);
        *ret_ring = ring;
        return 0;
    }
    for (size_t role = 0; code == 0 && role < (roles ? CT_ROLES : 1); role++) {
        struct ct_key_ring_entry *entry = &ring->entries[ring->count++];

        entry->grant = (struct ct_grant){.role = (enum ct_role)role, .jobs = "*"};
        if (role == CT_ROLE_ALL)
            entry->key = *key;
        else
            code = ct_key_derive(key, (enum ct_role)role, &entry->key, err);
        ct_psk_key_tag(ssl, &entry->key, entry->grant.id);
    }
    memcpy(ring->whole, ring->entries[0].grant.id, sizeof ring->whole);
    ring->is_of_one = true;
    qsort(ring->entries, ring->count, sizeof ring->entries[0], by_id);
    *ret_ring = ring;
    return code;
}

/* ---- the file ---- */

struct text {
    const struct ct_openssl *ssl;
    const char *path;
    unsigned line;
    struct ct_error *err;
};

static int complain(const struct text *text, const char *what)
{
    return ct_error_set(text->err, CT_EDATA, "key ring %s, line %u: %s", text->path, text->line,
                        what);
}

/* The words of a line of `size` bytes; their number, more than FIELDS as FIELDS + 1, -1 for a word
 * that is too long. */
static int split(const char *line, size_t size, char words[FIELDS][WORD])
{
    int count = 0;

    for (size_t at = 0; at < size;) {
        size_t length = 0;

        while (at < size && (line[at] == ' ' || line[at] == '\t' || line[at] == '\r'))
            at++;
        while (at + length < size && strchr(" \t\r", line[at + length]) == NULL)
            length++;
        if (length == 0 || line[at] == '#')
            break;
        if (count == FIELDS)
            return FIELDS + 1;
        if (length >= WORD)
            return -1;
        memcpy(words[count], line + at, length);
        words[count++][length] = '\0';
        at += length;
    }
    return count;
}

static bool read_secret(const char *text, struct ct_key *ret_key)
{
    const size_t digits = 2 * (size_t)CT_KEY_BYTES;

    if (strlen(text) != digits || strspn(text, "0123456789abcdef") != digits)
        return false;
    for (size_t i = 0; i < CT_KEY_BYTES; i++)
        ret_key->secret[i] =
            (unsigned char)(ct_hex_digit(text[2 * i]) << 4 | ct_hex_digit(text[2 * i + 1]));
    return true;
}

static int read_grant(const struct text *text, char words[FIELDS][WORD], struct ct_grant *grant)
{
    struct ct_error err = {0};
    char what[256];

    if (ct_grant_read_name(grant, words[1], &err) != 0 ||
        ct_grant_read_jobs(grant, words[3], &err) != 0 ||
        ct_grant_read_users(grant, words[4], &err) != 0)
        return complain(text, err.text);
    grant->role = ct_role_find(words[2]);
    if (grant->role == CT_ROLES) {
        (void)snprintf(what, sizeof what, "role \"%.40s\" is none of %s", words[2],
                       ct_role_names());
        return complain(text, what);
    }
    return 0;
}

static int read_munge(const struct text *text, char words[FIELDS][WORD], struct ct_key_ring *ring)
{
    struct ct_grant grant = {.role = CT_ROLES};
    struct ct_error err = {0};
    int code = read_grant(text, words, &grant);

    if (code == 0 && strcmp(words[5], "-") != 0)
        code = complain(text, "a line of munge has no secret: its last word is '-'");
    if (code == 0 && ct_munge_lines_add(&ring->munge, &grant, &err) != 0)
        code = complain(text, err.text);
    return code;
}

static int read_entry(const struct text *text, char words[FIELDS][WORD],
                      struct ct_key_ring_entry *ret_entry)
{
    struct ct_grant *grant = &ret_entry->grant;
    int code = read_grant(text, words, grant);

    if (code != 0)
        return code;
    if (!read_secret(words[5], &ret_entry->key))
        return complain(text, "the secret is not 64 hexadecimal digits in lower case");
    ct_psk_key_tag(text->ssl, &ret_entry->key, grant->id);
    if (strcmp(grant->id, words[0]) != 0)
        return complain(text, "the id is not the secret's: the line was changed by hand");
    return 0;
}

static int read_line(struct text *text, const char *line, size_t size, struct ct_key_ring *ring)
{
    char words[FIELDS][WORD];
    int count = split(line, size, words), code = 0;

    if (count != 0 && count != FIELDS)
        code = complain(text, "it has not the six words id, name, role, jobs, users, secret");
    else if (count != 0 && ring->count + ring->munge.count == CT_KEY_RING_KEYS)
        code = complain(text, "the ring has more than 4096 keys");
    else if (count != 0 && strcmp(words[0], CT_MUNGE_ID) == 0)
        code = read_munge(text, words, ring);
    else if (count != 0)
        code = read_entry(text, words, &ring->entries[ring->count++]);
    explicit_bzero(words, sizeof words);
    return code;
}

static int read_lines(struct text *text, const char *from, struct ct_key_ring *ring)
{
    int code = 0;

    for (const char *at = from; code == 0 && at[0] != '\0';) {
        size_t size = strcspn(at, "\n");

        text->line++;
        code = read_line(text, at, size, ring);
        at += size + (at[size] == '\n');
    }
    qsort(ring->entries, ring->count, sizeof ring->entries[0], by_id);
    for (size_t i = 1; code == 0 && i < ring->count; i++)
        if (by_id(&ring->entries[i - 1], &ring->entries[i]) == 0)
            code = ct_error_set(text->err, CT_EDATA, "key ring %s has key %s twice", text->path,
                                ring->entries[i].grant.id);
    return code;
}

int ct_key_ring_parse(const char *text, const char *path, struct ct_key_ring **ret_ring,
                      struct ct_error *err)
{
    struct text from = {.path = path, .err = err};
    int code = ct_openssl_get(&from.ssl, err);
    size_t lines = 1;

    if (code != 0)
        return code;
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    struct ct_key_ring *ring = new_ring(CT_MIN(lines, (size_t)CT_KEY_RING_KEYS) + 1);
    if (ring == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for key ring %s", path);
    code = read_lines(&from, text, ring);
    if (code != 0) {
        ct_key_ring_unref(ring);
        return code;
    }
    *ret_ring = ring;
    return 0;
}

int ct_key_ring_read_text(const char *path, struct ct_buf *text, struct ct_error *err)
{
    off_t size = 0;
    int fd = -1, code = ct_net_secret_open("key ring", path, &fd, &size, err);

    if (code != 0)
        return code;
    if (size > CT_KEY_RING_BYTES)
        code = ct_error_set(err, CT_EDATA, "key ring %s has %lld bytes, %d at most", path,
                            (long long)size, CT_KEY_RING_BYTES);
    char *to = code == 0 ? ct_buf_reserve(text, (size_t)size + 1) : NULL;
    if (code == 0 && to == NULL)
        code = ct_error_set(err, CT_ENOMEM, "no memory for key ring %s", path);
    if (to != NULL) {
        ssize_t count = read(fd, to, (size_t)size);
        if (count != size)
            code = ct_error_set(err, CT_ENOINPUT, "cannot read key ring %s whole", path);
        else
            text->size = (size_t)count;
        to[CT_MAX(count, 0)] = '\0';
    }
    if (code == 0 && (text->size == CT_KEY_BYTES || memchr(text->data, '\0', text->size) != NULL))
        code = ct_error_set(err, CT_EDATA,
                            "%s is no key ring but binary: a key of 32 bytes is given as a key "
                            "file; `ctrun key new FILE --ring RING` makes a ring",
                            path);
    close(fd);
    return code;
}

void ct_key_ring_wipe_text(struct ct_buf *text)
{
    if (text->data != NULL)
        explicit_bzero(text->data, text->room);
    ct_buf_deinit(text);
}

/* There is room for it. */
static int include(struct ct_key_ring *ring, const struct ct_key *own, struct ct_error *err)
{
    const struct ct_openssl *ssl = NULL;
    struct ct_key_ring_entry *entry = &ring->entries[ring->count];
    int code = ct_openssl_get(&ssl, err);

    if (code != 0)
        return code;
    if (own->kind == CT_KEY_MUNGE) {
        ct_munge_lines_own(&ring->munge, own);
        return 0;
    }
    *entry = (struct ct_key_ring_entry){.grant = {.role = CT_ROLE_ALL, .jobs = "*"}, .key = *own};
    ct_psk_key_tag(ssl, own, entry->grant.id);
    if (ct_key_ring_find_entry(ring, entry->grant.id) == NULL)
        ring->count++;
    qsort(ring->entries, ring->count, sizeof ring->entries[0], by_id);
    return 0;
}

int ct_key_ring_load(const char *path, const struct ct_key *own, struct ct_key_ring **ret_ring,
                     struct ct_error *err)
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    int code = ct_key_ring_read_text(path, &text, err);
    if (code == 0)
        code = ct_key_ring_parse(ct_buf_str(&text), path, ret_ring, err);
    if (code == 0 && own != NULL && own->kind != CT_KEY_CERTIFICATE)
        code = include(*ret_ring, own, err);
    ct_key_ring_wipe_text(&text);
    return code;
}
