/* Checkpoints written and read by several: however the bytes are divided, the files are the same.
 */
#include "train/checkpoint/checkpoint_parts.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/number/hash.h"
#include "folder.h"
#include "save_alone.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(ckpt_parts, .init = folder_make, .fini = folder_remove, .timeout = 30);

enum { WEIGHTS = 700000, WRITERS = 4, FILES = 2, MAX_PARTS = 64 };

/* A model whose tensors are larger than a block, and one that is no multiple of anything. */
struct fixture {
    float weight[WEIGHTS], bias[3], moment[WEIGHTS];
    struct ct_st_tensor model[2], optim[1];
    struct ct_ckpt_file files[FILES];
    struct ct_ckpt_save save;
};

static struct fixture saved, loaded;

static void fixture_init(struct fixture *f, const char *dir, float value)
{
    for (int i = 0; i < WEIGHTS; i++) {
        f->weight[i] = value * (float)i;
        f->moment[i] = value - (float)i;
    }
    f->bias[0] = f->bias[1] = f->bias[2] = value;
    f->model[0] = (struct ct_st_tensor){"fc.weight", CT_F32, 2, {7, WEIGHTS / 7}, f->weight};
    f->model[1] = (struct ct_st_tensor){"fc.bias", CT_F32, 1, {3}, f->bias};
    f->optim[0] = (struct ct_st_tensor){"exp_avg.fc.weight", CT_F32, 1, {WEIGHTS}, f->moment};
    f->files[0] = (struct ct_ckpt_file){"model.safetensors", f->model, 2};
    f->files[1] = (struct ct_ckpt_file){"optim.safetensors", f->optim, 1};
    f->save = (struct ct_ckpt_save){.dir = dir,
                                    .files = f->files,
                                    .file_count = FILES,
                                    .keep = 2,
                                    .state = {.step = 5, .generation = 3, .run_id = "r"}};
}

/* Number `writer`'s parts of `writers`: of each tensor a slice, the bias being the last one's. */
static size_t parts_of(const struct fixture *f, const struct ct_ckpt_places *places, int writer,
                       int writers, struct ct_ckpt_part parts[MAX_PARTS])
{
    size_t count = 0;

    for (size_t file = 0; file < FILES; file++)
        for (size_t i = 0; i < f->files[file].count; i++) {
            const struct ct_st_tensor *t = &f->files[file].tensors[i];
            uint64_t bytes = ct_st_bytes(t), each = bytes / (uint64_t)writers / 13 * 13;
            uint64_t begin = each * (uint64_t)writer;
            uint64_t end = writer + 1 == writers ? bytes : begin + each;
            if (begin < end)
                parts[count++] = (struct ct_ckpt_part){file, places->at[file][i] + begin,
                                                       end - begin, (char *)t->data + begin};
        }
    cr_assert(count <= MAX_PARTS);
    return count;
}

static void in_folder(char path[PATH_MAX], const char *name)
{
    (void)snprintf(path, PATH_MAX, "%s", folder_path(name));
}

static void join(struct ct_ckpt_shares *all, const struct ct_ckpt_shares *one)
{
    for (size_t i = 0; i < CT_CKPT_MAX_FILES; i++)
        all->crc32c[i] ^= one->crc32c[i];
}

/* All write, the last one first. */
static void save_together(const struct fixture *f, int writers, uint64_t *ret_digest)
{
    struct ct_ckpt_places places;
    struct ct_ckpt_shares all;
    struct ct_ckpt_part parts[MAX_PARTS];
    struct ct_error err = {0};

    cr_assert_eq(ct_ckpt_place(&places, f->files, FILES, &err), 0, "%s", err.text);
    cr_assert_eq(ct_ckpt_begin(&f->save, &all, &err), 0, "%s", err.text);
    for (int writer = writers - 1; writer >= 0; writer--) {
        struct ct_ckpt_shares mine = {{0}};
        size_t count = parts_of(f, &places, writer, writers, parts);
        cr_assert_eq(ct_ckpt_write(&f->save, &places, parts, count, NULL, &mine, &err), 0, "%s",
                     err.text);
        join(&all, &mine);
    }
    cr_assert_eq(ct_ckpt_end(&f->save, &places, &all, ret_digest, &err), 0, "%s", err.text);
    ct_ckpt_places_deinit(&places);
}

static void assert_same_file(const char *a, const char *b)
{
    struct ct_buf one = folder_read(a), other = folder_read(b);

    cr_assert_eq(one.size, other.size, "%s", a);
    cr_assert_eq(memcmp(one.data, other.data, one.size), 0, "%s", a);
    ct_buf_deinit(&one);
    ct_buf_deinit(&other);
}

Test(ckpt_parts, several_writers_make_the_files_of_one)
{
    static const char *const names[] = {"model.safetensors", "optim.safetensors", "state.json"};
    char alone[PATH_MAX], together[PATH_MAX];
    uint64_t one = 0, other = 1;
    struct ct_error err = {0};

    in_folder(alone, "alone");
    in_folder(together, "together");
    fixture_init(&saved, alone, 0.5f);
    cr_assert_eq(save_alone(&saved.save, &one, &err), 0, "%s", err.text);
    saved.save.dir = together;
    for (int writers = 1; writers <= WRITERS; writers++) {
        save_together(&saved, writers, &other);
        cr_assert_eq(one, other, "%d writers", writers);
        for (size_t i = 0; i < CT_COUNT(names); i++) {
            char file[2][64];
            (void)snprintf(file[0], sizeof file[0], "alone/step_00000005/%s", names[i]);
            (void)snprintf(file[1], sizeof file[1], "together/step_00000005/%s", names[i]);
            assert_same_file(folder_path(file[0]), folder_path(file[1]));
        }
        cr_assert_eq(folder_count(together, ".tmp"), 0);
    }
}

/* The verdict of `readers` that share the work. */
static int verify_together(const char *path, int readers, struct ct_error *err)
{
    struct ct_ckpt_shares all = {{0}};

    for (int reader = 0; reader < readers; reader++) {
        struct ct_ckpt_shares mine = {{0}};
        int code = ct_ckpt_verify(path, reader, readers, &mine, err);
        if (code != 0)
            return code;
        join(&all, &mine);
    }
    return ct_ckpt_judge(path, &all, err);
}

Test(ckpt_parts, several_readers_find_the_damage_that_one_finds)
{
    char dir[PATH_MAX], path[PATH_MAX], file[PATH_MAX];
    struct ct_ckpt_state back;
    struct ct_error err = {0};
    bool divisible = false;

    in_folder(dir, "ckpt");
    fixture_init(&saved, dir, 0.25f);
    save_together(&saved, 2, NULL);
    cr_assert_eq(ct_ckpt_path(dir, 5, path, &err), 0);
    in_folder(file, "ckpt/step_00000005/model.safetensors");
    cr_assert_eq(ct_ckpt_open(path, &back, &err), 0, "%s", err.text);
    cr_assert_eq(ct_ckpt_peek(path, &back, &divisible, &err), 0, "%s", err.text);
    cr_assert(divisible && back.step == 5);
    struct ct_buf content = folder_read(file);
    for (int readers = 1; readers <= WRITERS; readers++) {
        cr_assert_eq(verify_together(path, readers, &err), 0, "%s", err.text);
        size_t at = content.size / (size_t)readers - 1; /* the last byte of the first share */
        content.data[at] ^= 4;
        folder_write(file, content.data, content.size);
        cr_assert_eq(verify_together(path, readers, &err), CT_EDATA);
        cr_assert_not_null(strstr(err.text, "model.safetensors: damaged: its checksum is"), "%s",
                           err.text);
        content.data[at] ^= 4;
        folder_write(file, content.data, content.size);
    }
    folder_write(file, content.data, content.size - 1);
    cr_assert_eq(verify_together(path, 3, &err), CT_EDATA);
    cr_assert_not_null(strstr(err.text, "truncated"), "%s", err.text);
    ct_buf_deinit(&content);
}

Test(ckpt_parts, each_reads_its_own_bytes_wherever_tensors_lie)
{
    char dir[PATH_MAX], path[PATH_MAX];
    struct ct_ckpt_places places;
    struct ct_ckpt_part parts[MAX_PARTS];
    struct ct_error err = {0};

    in_folder(dir, "ckpt");
    fixture_init(&saved, dir, 0.75f);
    save_together(&saved, 3, NULL);
    fixture_init(&loaded, dir, 0);
    /* Another order than the file's, as another program's files have it. */
    struct ct_st_tensor first = loaded.model[0];
    loaded.model[0] = loaded.model[1];
    loaded.model[1] = first;
    cr_assert_eq(ct_ckpt_path(dir, 5, path, &err), 0);
    cr_assert_eq(ct_ckpt_find(&places, path, loaded.files, FILES, &err), 0, "%s", err.text);
    for (int reader = 0; reader < WRITERS; reader++) {
        size_t count = parts_of(&loaded, &places, reader, WRITERS, parts);
        cr_assert_eq(ct_ckpt_read(path, loaded.files, parts, count, &err), 0, "%s", err.text);
    }
    ct_ckpt_places_deinit(&places);
    cr_assert_eq(memcmp(saved.weight, loaded.weight, sizeof saved.weight), 0);
    cr_assert_eq(memcmp(saved.bias, loaded.bias, sizeof saved.bias), 0);
    cr_assert_eq(memcmp(saved.moment, loaded.moment, sizeof saved.moment), 0);
    loaded.model[0].shape[0] = 4;
    cr_assert_eq(ct_ckpt_find(&places, path, loaded.files, FILES, &err), CT_EDATA);
    cr_assert_not_null(strstr(err.text, "fc.bias"), "%s", err.text);
}

Test(ckpt_parts, what_is_not_ended_is_nobodys_and_goes_with_the_next_one)
{
    char dir[PATH_MAX], path[PATH_MAX];
    struct ct_ckpt_places places;
    struct ct_ckpt_shares shares;
    struct ct_ckpt_part parts[MAX_PARTS];
    atomic_bool cancel = true;
    struct ct_error err = {0};

    in_folder(dir, "ckpt");
    fixture_init(&saved, dir, 1);
    cr_assert_eq(ct_ckpt_place(&places, saved.files, FILES, &err), 0);
    cr_assert_eq(ct_ckpt_begin(&saved.save, &shares, &err), 0, "%s", err.text);
    size_t count = parts_of(&saved, &places, 0, 1, parts);
    cr_assert_eq(ct_ckpt_write(&saved.save, &places, parts, count, &cancel, &shares, &err),
                 CT_ECLOSED);
    cr_assert_eq(ct_ckpt_latest(dir, path, &err), CT_ENOTFOUND);
    cr_assert_eq(folder_count(dir, ".tmp"), 1);

    /* A writer of the round before, which was held up, does not get at the files of the next. */
    struct ct_ckpt_save late = saved.save;
    saved.save.state.generation++;
    save_together(&saved, 2, NULL);
    cr_assert_eq(ct_ckpt_write(&late, &places, parts, count, NULL, &shares, &err), 0, "%s",
                 err.text);
    cr_assert_eq(ct_ckpt_end(&late, &places, &shares, NULL, &err), CT_EFENCED);
    cr_assert_not_null(strstr(err.text, "a later round has written it already"), "%s", err.text);
    cr_assert_eq(ct_ckpt_begin(&late, &shares, &err), 0, "%s", err.text);
    cr_assert_eq(ct_ckpt_publish(&saved.save, &err), 0, "%s", err.text);
    cr_assert_eq(folder_count(dir, ".tmp"), 0);
    cr_assert_eq(ct_ckpt_write(&late, &places, parts, count, NULL, &shares, &err), CT_EIO);
    cr_assert_not_null(strstr(err.text, "model.safetensors: No such file"), "%s", err.text);
    ct_ckpt_places_deinit(&places);
}

/* state.json as version 1 wrote it. */
static void write_version_1(const char *path, const char *file, uint64_t bytes, uint64_t xxh3)
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    (void)ct_buf_printf(&text,
                        "{\n  \"version\": 1,\n  \"step\": 5,\n  \"position\": 0,\n  \"seed\": 1,\n"
                        "  \"global_batch\": 8,\n  \"world\": 1,\n  \"config_hash\": \"%016x\",\n"
                        "  \"program_hash\": \"%016x\",\n  \"run_id\": \"r\",\n"
                        "  \"files\": {\n    \"%s\": {\"bytes\": %llu, \"xxh3\": \"%016llx\"}\n  }",
                        1u, 2u, file, (unsigned long long)bytes, (unsigned long long)xxh3);
    uint64_t checksum = ct_hash64(text.data, text.size, 0);
    (void)ct_buf_printf(&text, ",\n  \"checksum\": \"%016llx\"\n}\n", (unsigned long long)checksum);
    folder_write(path, text.data, text.size);
    ct_buf_deinit(&text);
}

Test(ckpt_parts, a_checkpoint_of_version_1_is_read)
{
    enum { BLOCK = 1 << 20 };
    char dir[PATH_MAX], path[PATH_MAX], file[PATH_MAX], state[PATH_MAX];
    struct ct_ckpt_state back;
    struct ct_error err = {0};
    uint64_t xxh3 = 0;
    bool divisible = true;

    in_folder(dir, "ckpt");
    fixture_init(&saved, dir, 2);
    save_together(&saved, 1, NULL);
    cr_assert_eq(ct_ckpt_path(dir, 5, path, &err), 0);
    in_folder(file, "ckpt/step_00000005/model.safetensors");
    in_folder(state, "ckpt/step_00000005/state.json");
    struct ct_buf content = folder_read(file);
    for (size_t at = 0; at < content.size; at += BLOCK)
        xxh3 = ct_hash64(content.data + at, CT_MIN(content.size - at, (size_t)BLOCK), xxh3);
    write_version_1(state, "model.safetensors", content.size, xxh3);
    cr_assert_eq(ct_ckpt_open(path, &back, &err), 0, "%s", err.text);
    cr_assert_eq(ct_ckpt_peek(path, &back, &divisible, &err), 0, "%s", err.text);
    cr_assert_not(divisible);
    write_version_1(state, "model.safetensors", content.size, xxh3 + 1);
    cr_assert_eq(ct_ckpt_open(path, &back, &err), CT_EDATA);
    cr_assert_not_null(strstr(err.text, "damaged: its checksum is"), "%s", err.text);
    ct_buf_deinit(&content);
}
