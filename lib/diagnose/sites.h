/* Call sites: the function of a worker at an address in its flight recorder.
 *
 *      a living worker     /proc/PID/maps          any of its files, and the offset in it
 *      a dead one          its record              its program, and the address it was mapped at
 *      either              symbols of the file     "first_call+0x41 in hangs"
 *
 * Recording stores bare addresses; the printing program looks them up, once each. A file without
 * the symbol gives "hangs+0x1a2b", an address in no file "0x7f0012345678". Files are read up to a
 * limit, and never trusted. */
#ifndef CT_DIAGNOSE_SITES_H
#define CT_DIAGNOSE_SITES_H

#include "wire/worker_record.h"

enum {
    CT_SITE_TEXT = 160,
    CT_SITES_KNOWN = 32,          /* addresses whose text is kept */
    CT_SITES_SYMBOLS = 1 << 20,   /* of a file and a kind of table, are looked at */
    CT_SITES_MAPS_BYTES = 1 << 20 /* of /proc/PID/maps */
};

/* The sites of one worker, with a cache. */
struct ct_sites {
    const struct ct_record_view *view;
    struct ct_site {
        uint64_t address;
        char text[CT_SITE_TEXT];
    } known[CT_SITES_KNOWN];
    uint32_t count; /* found so far; the oldest make room */
};

/* Initialise for the worker of `view`, which must outlive it. */
void ct_sites_init(struct ct_sites *sites, const struct ct_record_view *view);

/* Return the text of a site, valid until CT_SITES_KNOWN others are looked up; "" for 0. */
const char *ct_sites_text(struct ct_sites *sites, uint64_t address);

/* Return the function of an ELF file that has this address (before the loader moves it); false:
 * unknown. `*ret_offset` is the offset in the function. */
bool ct_sites_function(const char *file, uint64_t address, char *name, size_t room,
                       uint64_t *ret_offset);

#endif
