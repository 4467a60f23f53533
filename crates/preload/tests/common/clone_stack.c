/* A thread made by clone(2) alone, on a stack of one page between pages that cannot be touched: it
 * makes a ring, waits in it, and closes it. Prints how many bytes of the stack it has used.
 * argv[1] "cost": prints nanoseconds per enter on a large stack and on such a one, instead.
 * argv[2]: how the calls are made. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "ring.h"

enum { PAGE = 4096, PAINT = 0x5a, CALLS = 200000 };

static int by_name, measures, alive;
static long made, entered, waited, closed, each;
static char alternate[65536];
static struct { unsigned long mask; unsigned size, wait; struct timespec *until; } timed;
static struct timespec moment = { 0, 20000000 };

static NOINLINE long call(long nr, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long ret;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}

static NOINLINE long now(void)
{
    struct timespec at;
    call(228, CLOCK_MONOTONIC, (long)&at, 0, 0, 0, 0);
    return at.tv_sec * 1000000000 + at.tv_nsec;
}

static NOINLINE long cost(int ring)
{
    long best = 1L << 40;
    for (int round = 0; round < 5; round++) {
        long from = now();
        for (int i = 0; i < CALLS; i++)
            enter(by_name, ring, 0);
        long took = now() - from;
        best = took < best ? took : best;
    }
    return best;
}

/* The thread. For the trap's frame, which is a signal's, it has an alternate stack. */
static NOINLINE void thread(void)
{
    stack_t other = { .ss_sp = alternate, .ss_size = sizeof alternate };
    call(131, (long)&other, 0, 0, 0, 0, 0);
    made = setup(by_name);
    entered = enter(by_name, (int)made, 0);
    if (measures)
        each = cost((int)made);
    /* IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG */
    timed.until = &moment;
    waited = call(426, made, 0, 1, 9, (long)&timed, sizeof timed);
    closed = call(3, made, 0, 0, 0, 0, 0);
}

static NOINLINE void clone_on(char *top)
{
    long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID;
    register long ctid __asm__("r10") = (long)&alive, tls __asm__("r8") = 0;
    register void (*what)(void) __asm__("r12") = thread;
    long ret;
    alive = 1;
    __asm__ volatile("movl $56, %%eax\n\t"
                     "syscall\n\t"
                     "testq %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xorl %%ebp, %%ebp\n\t"
                     "call *%%r12\n\t"
                     "movl $60, %%eax\n\t"
                     "xorl %%edi, %%edi\n\t"
                     "syscall\n"
                     "1:"
                     : "=&a"(ret)
                     : "D"(flags), "S"(top), "d"(0L), "r"(ctid), "r"(tls), "r"(what)
                     : "rcx", "r11", "memory");
    while (__atomic_load_n(&alive, __ATOMIC_ACQUIRE))
        call(202, (long)&alive, FUTEX_WAIT, 1, 0, 0, 0);
}

int main(int argc, char **argv)
{
    char *map = mmap(NULL, 3 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *stack = map + PAGE, *at = stack;
    long large = 0;

    measures = argc > 1 && strcmp(argv[1], "cost") == 0;
    by_name = argc > 2 && strcmp(argv[2], "name") == 0;
    mprotect(stack, PAGE, PROT_READ | PROT_WRITE);
    memset(stack, PAINT, PAGE);
    /* Binds the name. */
    syscall(39);
    if (measures) {
        int ring = (int)setup(by_name);
        if (ring < 0)
            return 77;
        large = cost(ring);
        call(3, ring, 0, 0, 0, 0, 0);
    }
    clone_on(stack + PAGE);
    if (made < 0)
        return 77;
    if (entered != 0 || waited != -62 || closed != 0)
        return fprintf(stderr, "enter: %ld, a wait: %ld, close: %ld\n", entered, waited, closed), 1;
    while (at < stack + PAGE && *at == PAINT)
        at++;
    if (measures)
        printf("%.1f %.1f\n", (double)large / CALLS, (double)each / CALLS);
    else
        printf("%ld\n", (long)(stack + PAGE - at));
    return 0;
}
