/* See fiber.h. On x86-64 a change is a call that keeps the registers of the System V ABI and swaps
 * stacks; elsewhere it is swapcontext(3). AddressSanitizer is told of each: it knows a thread by
 * its stack. */
#include "fiber.h"

#include "base/assert.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { FIBERS = 1024, STACK_BYTES = 256 << 10, GUARD_BYTES = 64 << 10 };

struct fiber {
    void (*body)(void *argument);
    void *argument;
    char *stack; /* with GUARD_BYTES in front that cannot be touched */
    struct usable {
        const void *bottom;
        size_t bytes;
    } usable;     /* of the stack; outside: of the thread that has resumed a fiber */
    void *frames; /* AddressSanitizer's, while it does not run */
#ifdef __x86_64__
    void *top; /* of the stack while it does not run */
#else
    ucontext_t context;
#endif
};

static struct fiber fibers[FIBERS];
static struct fiber outside, *running;

/* Of AddressSanitizer (sanitizer/common_interface_defs.h): absent without it. */
extern void __sanitizer_start_switch_fiber(void **ret_frames, const void *bottom, size_t bytes)
    __attribute__((weak));
extern void __sanitizer_finish_switch_fiber(void *frames, const void **ret_bottom,
                                            size_t *ret_bytes) __attribute__((weak));

/* `over`: what `from` ran will not go on. */
static void leave(struct fiber *from, const struct fiber *to, bool over)
{
    if (__sanitizer_start_switch_fiber != NULL)
        __sanitizer_start_switch_fiber(over ? NULL : &from->frames, to->usable.bottom,
                                       to->usable.bytes);
}

/* A fiber learns here which stack it will go back to. */
static void arrive(const struct fiber *at)
{
    struct usable before;

    if (__sanitizer_finish_switch_fiber == NULL)
        return;
    __sanitizer_finish_switch_fiber(at->frames, &before.bottom, &before.bytes);
    if (at != &outside)
        outside.usable = before;
}

static void new_stack(struct fiber *fiber)
{
    char *memory = mmap(NULL, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    CT_ASSERT(memory != MAP_FAILED);
    CT_ASSERT(mprotect(memory, GUARD_BYTES, PROT_NONE) == 0);
    fiber->stack = memory;
    fiber->usable = (struct usable){memory + GUARD_BYTES, STACK_BYTES};
}

#ifdef __x86_64__

/* Keep this stack's top in *from and go on at `to`. */
void ct_fiber_swap(void **from, void *to);
__asm__(".text\n"
        ".type ct_fiber_swap, @function\n"
        "ct_fiber_swap:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size ct_fiber_swap, . - ct_fiber_swap\n");

static void swap(struct fiber *from, struct fiber *to)
{
    ct_fiber_swap(&from->top, to->top);
}

static void fiber_main(void);

/* As if fiber_main had been called, from nowhere, with registers kept. */
static void prepare(struct fiber *fiber)
{
    enum { KEPT = 6 };
    uintptr_t *top = (uintptr_t *)(void *)(fiber->stack + GUARD_BYTES + STACK_BYTES);

    *--top = 0; /* aligns the stack, and is where a debugger's trace ends */
    *--top = (uintptr_t)fiber_main;
    for (int i = 0; i < KEPT; i++)
        *--top = 0;
    fiber->top = top;
}

#else

static void swap(struct fiber *from, struct fiber *to)
{
    CT_ASSERT(swapcontext(&from->context, &to->context) == 0);
}

static void fiber_main(void);

static void prepare(struct fiber *fiber)
{
    CT_ASSERT(getcontext(&fiber->context) == 0);
    fiber->context.uc_stack.ss_sp = fiber->stack + GUARD_BYTES;
    fiber->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&fiber->context, fiber_main, 0);
}

#endif

static void change(struct fiber *from, struct fiber *to, bool over)
{
    leave(from, to, over);
    swap(from, to);
    arrive(from);
}

static void fiber_main(void)
{
    arrive(running);
    running->body(running->argument);
    change(running, &outside, true);
}

struct fiber *fiber_start(int index, void (*body)(void *argument), void *argument)
{
    CT_ASSERT(index >= 0 && index < FIBERS);
    struct fiber *fiber = &fibers[index];

    if (fiber->stack == NULL)
        new_stack(fiber);
    fiber->body = body;
    fiber->argument = argument;
    fiber->frames = NULL;
    prepare(fiber);
    return fiber;
}

void fiber_resume(struct fiber *fiber)
{
    running = fiber;
    change(&outside, fiber, false);
}

void fiber_yield(void)
{
    change(running, &outside, false);
}
