/* Lines are put into the file of a ring, and taken out of it; see key_ring.h. */
#include "keys/key_ring_inner.h"

#include "base/fs.h"
#include "base/str.h"
#include "keys/openssl.h"
#include "keys/psk.h"

#include <string.h>
#include <unistd.h>

void ct_grant_put_users(const struct ct_grant *grant, struct ct_buf *out)
{
    for (uint32_t i = 0; i < grant->user_count; i++)
        (void)ct_buf_printf(out, "%s%u", i > 0 ? "," : "", grant->users[i]);
    if (grant->user_count == 0)
        (void)ct_buf_puts(out, "*");
}

static int replace(const char *path, struct ct_buf *text, struct ct_error *err)
{
    if (text->failed)
        return ct_error_set(err, CT_ENOMEM, "no memory for key ring %s", path);
    return ct_fs_replace_private(path, text->data, text->size, err);
}

/* Has the ring no place for it? */
static int check_new(struct ct_key_ring *ring, const char *path, const struct ct_grant *grant,
                     struct ct_error *err)
{
    if (ring->count + ring->munge.count == CT_KEY_RING_KEYS)
        return ct_error_set(err, CT_ELIMIT, "key ring %s has %d keys, as many as it may have", path,
                            CT_KEY_RING_KEYS);
    if (ct_key_ring_find_entry(ring, grant->id) != NULL)
        return ct_error_set(err, CT_EUSAGE, "key ring %s has this key already (%s)", path,
                            grant->id);
    int code =
        strcmp(grant->id, CT_MUNGE_ID) == 0 ? ct_munge_lines_add(&ring->munge, grant, err) : 0;
    return code == 0 ? 0 : ct_error_prefix(err, "key ring %s", path);
}

static void put_line(struct ct_buf *out, const struct ct_grant *grant, const struct ct_key *key)
{
    char secret[2 * CT_KEY_BYTES + 1] = "-";

    if (out->size > 0 && out->data[out->size - 1] != '\n')
        (void)ct_buf_puts(out, "\n");
    (void)ct_buf_printf(out, "%s %s %s %s ", grant->id, grant->name, ct_role_name(grant->role),
                        grant->jobs);
    ct_grant_put_users(grant, out);
    if (key->kind == CT_KEY_SECRET)
        ct_put_hex(key->secret, CT_KEY_BYTES, secret);
    (void)ct_buf_printf(out, " %s\n", secret);
    explicit_bzero(secret, sizeof secret);
}

int ct_key_ring_add(const char *path, struct ct_grant *grant, const struct ct_key *key,
                    struct ct_error *err)
{
    const struct ct_openssl *ssl = NULL;
    struct ct_key_ring *ring = NULL;
    struct ct_buf text;
    int code = ct_openssl_get(&ssl, err);

    if (code != 0)
        return code;
    ct_buf_init(&text, 0);
    if (key->kind == CT_KEY_MUNGE)
        (void)ct_str_copy(grant->id, sizeof grant->id, CT_MUNGE_ID);
    else
        ct_psk_key_tag(ssl, key, grant->id);
    if (access(path, F_OK) != 0)
        (void)ct_buf_puts(&text, "# id name role jobs users secret\n");
    else
        code = ct_key_ring_read_text(path, &text, err);
    if (code == 0)
        code = ct_key_ring_parse(ct_buf_str(&text), path, &ring, err);
    if (code == 0)
        code = check_new(ring, path, grant, err);
    if (code == 0) {
        put_line(&text, grant, key);
        code = replace(path, &text, err);
    }
    ct_key_ring_unref(ring);
    ct_key_ring_wipe_text(&text);
    return code;
}

/* Whom a line is of: its first word, and of a munge line its second. */
struct meant {
    const char *id, *name;
};

/* Those of the name, or the one with the id, which of a line of munge is "munge:NAME"; their
 * number. */
static size_t count_meant(const struct ct_key_ring *ring, const char *name, struct ct_buf *ids,
                          struct meant *ret_meant)
{
    const struct ct_key_ring_entry *found = ct_key_ring_find_entry(ring, name);
    const char *munge =
        ct_starts_with(name, CT_MUNGE_ID ":") ? name + strlen(CT_MUNGE_ID ":") : name;
    size_t count = found != NULL;

    if (found != NULL)
        ret_meant->id = found->grant.id;
    for (size_t i = 0; found == NULL && i < ring->count; i++)
        if (strcmp(ring->entries[i].grant.name, name) == 0) {
            (void)ct_buf_printf(ids, "%s%s", count > 0 ? ", " : "", ring->entries[i].grant.id);
            ret_meant->id = ring->entries[i].grant.id;
            count++;
        }
    for (size_t i = 0; found == NULL && i < ring->munge.count; i++)
        if (strcmp(ring->munge.at[i].name, munge) == 0) {
            (void)ct_buf_printf(ids, "%s" CT_MUNGE_ID ":%s", count > 0 ? ", " : "", munge);
            *ret_meant = (struct meant){CT_MUNGE_ID, ring->munge.at[i].name};
            count++;
        }
    return count;
}

/* The one line that is meant. */
static int find_meant(const struct ct_key_ring *ring, const char *path, const char *name,
                      struct meant *ret_meant, struct ct_error *err)
{
    struct ct_buf ids;
    int code = 0;

    ct_buf_init(&ids, 1024);
    size_t count = count_meant(ring, name, &ids, ret_meant);
    if (count == 0)
        code = ct_error_set(err, CT_EUSAGE,
                            "key ring %s has no key \"%.100s\": `ctrun key list %s` shows all",
                            path, name, path);
    if (count > 1)
        code = ct_error_set(err, CT_EUSAGE,
                            "key ring %s has %zu keys of the name %s: name one by its id, %s", path,
                            count, name, ct_buf_str(&ids));
    ct_buf_deinit(&ids);
    return code;
}

static bool is_word(const char **at, const char *word)
{
    *at += strspn(*at, " \t\r");
    size_t size = strcspn(*at, " \t\r\n");
    bool same = size == strlen(word) && memcmp(*at, word, size) == 0;
    *at += size;
    return same;
}

/* Without the line that is meant. */
static void cut_line(struct ct_buf *text, const struct meant *meant)
{
    for (size_t at = 0; at < text->size;) {
        size_t size = strcspn(text->data + at, "\n");
        const char *words = text->data + at;

        size += text->data[at + size] == '\n';
        if (is_word(&words, meant->id) && (meant->name == NULL || is_word(&words, meant->name))) {
            memmove(text->data + at, text->data + at + size, text->size - at - size + 1);
            text->size -= size;
            return;
        }
        at += size;
    }
}

int ct_key_ring_remove(const char *path, const char *name, struct ct_error *err)
{
    struct ct_key_ring *ring = NULL;
    struct meant meant = {NULL, NULL};
    struct ct_buf text;

    ct_buf_init(&text, 0);
    int code = ct_key_ring_read_text(path, &text, err);
    if (code == 0)
        code = ct_key_ring_parse(ct_buf_str(&text), path, &ring, err);
    if (code == 0)
        code = find_meant(ring, path, name, &meant, err);
    if (code == 0 && meant.id != NULL) {
        cut_line(&text, &meant);
        code = replace(path, &text, err);
    }
    ct_key_ring_unref(ring);
    ct_key_ring_wipe_text(&text);
    return code;
}
