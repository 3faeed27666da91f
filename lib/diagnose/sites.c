/* See sites.h. */
#include "diagnose/sites.h"

#include "base/assert.h"
#include "base/bytes.h"

#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CHUNK = 256, HEADERS_MAX = 4096 };

/* ---- ELF --------------------------------------------------------------------------------------*/

static bool read_at(int fd, void *to, size_t size, uint64_t at)
{
    return at < INT64_MAX && pread(fd, to, size, (off_t)at) == (ssize_t)size;
}

static bool read_head(int fd, Elf64_Ehdr *head)
{
    return read_at(fd, head, sizeof *head, 0) && memcmp(head->e_ident, ELFMAG, SELFMAG) == 0 &&
           head->e_ident[EI_CLASS] == ELFCLASS64 && head->e_phentsize == sizeof(Elf64_Phdr) &&
           head->e_shentsize == sizeof(Elf64_Shdr) && head->e_phnum <= HEADERS_MAX &&
           head->e_shnum <= HEADERS_MAX;
}

/* The part of the program that has this byte of the file or, `loaded`, this address of it. */
static bool find_part(int fd, const Elf64_Ehdr *head, uint64_t at, bool loaded,
                      Elf64_Phdr *ret_part)
{
    Elf64_Phdr part;

    for (uint64_t i = 0; i < head->e_phnum; i++) {
        if (!read_at(fd, &part, sizeof part, head->e_phoff + i * sizeof part))
            return false;
        uint64_t first = loaded ? part.p_vaddr : part.p_offset;
        if (part.p_type == PT_LOAD && at >= first && at - first < part.p_filesz) {
            *ret_part = part;
            return true;
        }
    }
    return false;
}

/* The function of this table that has the address, among the `*left` that may still be looked at.
 */
static bool find_symbol(int fd, const Elf64_Shdr *table, uint64_t address, uint64_t *left,
                        Elf64_Sym *ret_symbol)
{
    uint64_t count = CT_MIN(table->sh_size / sizeof(Elf64_Sym), *left);
    Elf64_Sym symbols[CHUNK];

    *left -= count;
    for (uint64_t at = 0; at < count; at += CHUNK) {
        uint64_t here = CT_MIN(count - at, (uint64_t)CHUNK);

        if (!read_at(fd, symbols, here * sizeof *symbols, table->sh_offset + at * sizeof *symbols))
            return false;
        for (uint64_t i = 0; i < here; i++) {
            if (ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC && symbols[i].st_shndx != SHN_UNDEF &&
                address >= symbols[i].st_value &&
                address - symbols[i].st_value < symbols[i].st_size) {
                *ret_symbol = symbols[i];
                return true;
            }
        }
    }
    return false;
}

/* Only what is printable: it goes to a terminal. */
static bool read_name(int fd, uint64_t at, char *name, size_t room)
{
    ssize_t size = at < INT64_MAX ? pread(fd, name, room - 1, (off_t)at) : -1;

    name[size > 0 ? size : 0] = '\0';
    for (size_t i = 0; name[i] != '\0'; i++)
        if (name[i] <= ' ' || name[i] > '~')
            return false;
    return name[0] != '\0';
}

/* Look into the tables of one kind. */
static bool find_in_tables(int fd, const Elf64_Ehdr *head, uint32_t kind, uint64_t address,
                           char *name, size_t room, uint64_t *ret_offset)
{
    Elf64_Shdr table, names;
    Elf64_Sym symbol;
    uint64_t left = CT_SITES_SYMBOLS;

    for (uint64_t i = 0; i < head->e_shnum; i++) {
        if (!read_at(fd, &table, sizeof table, head->e_shoff + i * sizeof table))
            return false;
        if (table.sh_type != kind || table.sh_link >= head->e_shnum ||
            !find_symbol(fd, &table, address, &left, &symbol) ||
            !read_at(fd, &names, sizeof names, head->e_shoff + table.sh_link * sizeof names) ||
            symbol.st_name >= names.sh_size ||
            !read_name(fd, names.sh_offset + symbol.st_name, name, room))
            continue;
        *ret_offset = address - symbol.st_value;
        return true;
    }
    return false;
}

bool ct_sites_function(const char *file, uint64_t address, char *name, size_t room,
                       uint64_t *ret_offset)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    Elf64_Ehdr head;

    if (fd < 0)
        return false;
    bool found = read_head(fd, &head) &&
                 (find_in_tables(fd, &head, SHT_SYMTAB, address, name, room, ret_offset) ||
                  find_in_tables(fd, &head, SHT_DYNSYM, address, name, room, ret_offset));
    (void)close(fd);
    return found;
}

/* The address in an ELF file, before the loader moved it, of a byte of the file or, `loaded`, of
 * itself; false: there is none. */
static bool find_address(const char *file, uint64_t at, bool loaded, uint64_t *ret_address)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    Elf64_Ehdr head;
    Elf64_Phdr part;

    if (fd < 0)
        return false;
    bool found = read_head(fd, &head) && find_part(fd, &head, at, loaded, &part);
    if (found)
        *ret_address = loaded ? at : part.p_vaddr + (at - part.p_offset);
    (void)close(fd);
    return found;
}

/* ---- where an address lies --------------------------------------------------------------------*/

struct place {
    char file[PATH_MAX];
    uint64_t address; /* in the file, before the loader moved it */
};

/* Does the process still run what its record says? */
static bool is_running(const struct ct_record_view *view)
{
    char path[64], program[PATH_MAX];

    (void)snprintf(path, sizeof path, "/proc/%u/exe", view->pid);
    ssize_t size = view->pid != 0 ? readlink(path, program, sizeof program - 1) : -1;
    program[size > 0 ? size : 0] = '\0';
    return size > 0 && strncmp(program, view->program, sizeof view->program - 1) == 0;
}

/* Read a line of /proc/PID/maps; true when it has the address: its file and the place in that. */
static bool read_mapping(char *line, uint64_t address, char *file, size_t room, uint64_t *ret_at)
{
    uint64_t first, end, offset;
    int name = 0;

    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*4s %" SCNx64 " %*s %*s %n", &first, &end, &offset,
               &name) != 3 ||
        address < first || address >= end || line[name] != '/')
        return false;
    line[strcspn(line, "\n")] = '\0';
    (void)snprintf(file, room, "%s", line + name);
    *ret_at = address - first + offset;
    return true;
}

/* In a file that the process has mapped. */
static bool find_mapping(const struct ct_record_view *view, uint64_t address, struct place *place)
{
    char path[64], line[PATH_MAX + 128];
    size_t bytes = 0;
    bool found = false;
    uint64_t at = 0;

    (void)snprintf(path, sizeof path, "/proc/%u/maps", view->pid);
    FILE *maps = is_running(view) ? fopen(path, "re") : NULL;
    while (maps != NULL && !found && bytes < CT_SITES_MAPS_BYTES &&
           fgets(line, sizeof line, maps) != NULL) {
        bytes += strlen(line);
        found = read_mapping(line, address, place->file, sizeof place->file, &at);
    }
    if (maps != NULL)
        (void)fclose(maps);
    return found && find_address(place->file, at, false, &place->address);
}

/* Without a process: in its program, as it said where that lies. */
static bool find_in_program(const struct ct_record_view *view, uint64_t address,
                            struct place *place)
{
    (void)snprintf(place->file, sizeof place->file, "%s", view->program);
    return address >= view->program_at &&
           find_address(view->program, address - view->program_at, true, &place->address);
}

/* ---- texts ------------------------------------------------------------------------------------*/

static void print_site(const struct ct_record_view *view, uint64_t address, char *text, size_t room)
{
    uint64_t call = address - 1, offset; /* it returns behind the call, which may be the last */
    char name[CT_SITE_TEXT / 2];
    struct place place;

    if (!find_mapping(view, call, &place) && !find_in_program(view, call, &place)) {
        (void)snprintf(text, room, "0x%" PRIx64, address);
        return;
    }
    const char *slash = strrchr(place.file, '/');
    struct ct_buf file; /* anybody's choice, and goes to a terminal */
    ct_buf_init(&file, 0);
    ct_buf_put_clean(&file, slash != NULL ? slash + 1 : place.file, "");
    if (ct_sites_function(place.file, place.address, name, sizeof name, &offset))
        (void)snprintf(text, room, "%s+0x%" PRIx64 " in %.48s", name, offset + 1,
                       ct_buf_str(&file));
    else
        (void)snprintf(text, room, "%.100s+0x%" PRIx64, ct_buf_str(&file), place.address + 1);
    ct_buf_deinit(&file);
}

void ct_sites_init(struct ct_sites *sites, const struct ct_record_view *view)
{
    sites->view = view;
    sites->count = 0;
}

const char *ct_sites_text(struct ct_sites *sites, uint64_t address)
{
    uint32_t known = CT_MIN(sites->count, (uint32_t)CT_SITES_KNOWN);

    if (address == 0)
        return "";
    for (uint32_t i = 0; i < known; i++)
        if (sites->known[i].address == address)
            return sites->known[i].text;
    struct ct_site *site = &sites->known[sites->count++ % CT_SITES_KNOWN];
    site->address = address;
    print_site(sites->view, address, site->text, sizeof site->text);
    return site->text;
}
