/* A verdict in words; see verdict.h. */
#include "diagnose/verdict.h"

static struct ct_signature what_of(const struct ct_wire_trace_call *call)
{
    return (struct ct_signature){call->count, call->what};
}

const char *ct_verdict_name(enum ct_verdict_kind kind)
{
    static const char *const names[] = {
        [CT_VERDICT_NONE] = "NONE",         [CT_VERDICT_MISSING] = "MISSING",
        [CT_VERDICT_MISMATCH] = "MISMATCH", [CT_VERDICT_STUCK] = "STUCK",
        [CT_VERDICT_SLOW] = "SLOW",         [CT_VERDICT_DEAD] = "DEAD",
    };

    return names[kind];
}

/* "all_reduce of 650 F32, SUM, FAST (number 7 of group world/1, called from train+0x41)" */
static void print_call(const struct ct_verdict_call *of, struct ct_buf *to)
{
    char text[CT_SIGNATURE_TEXT] = "a collective";

    if (of->group == NULL) {
        (void)ct_buf_puts(to, "a collective");
        return;
    }
    if (of->call != NULL)
        ct_signature_print(what_of(of->call), text, sizeof text);
    else if (of->number == 0)
        (void)ct_buf_puts(to, "a send or recv");
    if (of->call != NULL || of->number != 0)
        (void)ct_buf_puts(to, text);
    if (of->number != 0)
        (void)ct_buf_printf(to, " (number %llu of group %s", (unsigned long long)of->number,
                            of->group->name);
    else
        (void)ct_buf_printf(to, " (in group %s", of->group->name);
    if (of->call != NULL && of->call->site[0] != '\0')
        (void)ct_buf_printf(to, ", called from %s", of->call->site);
    (void)ct_buf_puts(to, ")");
}

static void print_waiting(const struct ct_verdict *verdict, struct ct_buf *to)
{
    (void)ct_buf_printf(to, "%u rank%s %s waited for it for %.1f s", verdict->waiting,
                        verdict->waiting == 1 ? "" : "s", verdict->waiting == 1 ? "has" : "have",
                        (double)verdict->since_ms / 1000);
}

/* What it did last, for who looks for the place in the program. */
static void print_last(const struct ct_verdict *verdict, struct ct_buf *to)
{
    const struct ct_verdict_call *own = &verdict->own;

    if (own->group == NULL)
        return;
    (void)ct_buf_puts(to, "; its last call of the group was ");
    print_call(own, to);
    if (own->call != NULL)
        (void)ct_buf_printf(to, ", %.1f s ago", (double)own->call->age_ms / 1000);
}

static void print_mismatch(const struct ct_verdict *verdict, struct ct_buf *to)
{
    (void)ct_buf_puts(to, " called ");
    print_call(&verdict->own, to);
    (void)ct_buf_printf(to, " where rank %u called ", verdict->other);
    print_call(&verdict->awaited, to);
    (void)ct_buf_printf(to, ", %.1f s ago", (double)verdict->since_ms / 1000);
}

void ct_verdict_print(const struct ct_verdict *verdict, struct ct_buf *to)
{
    const struct ct_wire_trace_rank *culprit = verdict->culprit;

    (void)ct_buf_printf(to, "%s: rank %u (host %s, pid %d)", ct_verdict_name(verdict->kind),
                        culprit->rank, culprit->host, culprit->pid);
    if (verdict->kind == CT_VERDICT_MISMATCH) {
        print_mismatch(verdict, to);
        return;
    }
    if (verdict->kind == CT_VERDICT_DEAD) {
        (void)ct_buf_puts(to, " has ended");
        if (culprit->status >= 0)
            (void)ct_buf_printf(to, " with status %d", culprit->status);
        if (verdict->waiting == 0) {
            print_last(verdict, to);
            return;
        }
        (void)ct_buf_puts(to, "; it is awaited in ");
    }
    if (verdict->kind == CT_VERDICT_STUCK) {
        (void)ct_buf_puts(to, " does not come out of ");
        print_call(&verdict->own, to);
    } else {
        if (verdict->kind != CT_VERDICT_DEAD)
            (void)ct_buf_puts(to, " has not entered ");
        print_call(&verdict->awaited, to);
    }
    (void)ct_buf_puts(to, ", ");
    print_waiting(verdict, to);
    if (verdict->kind == CT_VERDICT_SLOW)
        (void)ct_buf_printf(to, "; it usually takes %.1f s from one call to the next",
                            (double)culprit->gap_ms / 1000);
    else if (culprit->doing[0] != '\0' && verdict->kind != CT_VERDICT_DEAD)
        (void)ct_buf_printf(to, "; its process is %s", culprit->doing);
    if (verdict->kind != CT_VERDICT_STUCK)
        print_last(verdict, to);
}
