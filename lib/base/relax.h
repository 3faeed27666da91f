/* Pause between two polls of a line that another core will write: the core rests for some tens of
 * cycles, and leaves the line to the writer. */
#ifndef CT_BASE_RELAX_H
#define CT_BASE_RELAX_H

static inline void ct_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

#endif
