/* What unwinds a stack that a ring call is on: a handler that comes during a wait in enter asks
 * who called, and a thread is cancelled there. argv[1]: how enter is called. */
#define _GNU_SOURCE
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "ring.h"

static void *called[64];
static int depth, cleaned, by_name, ring;

/* Through a pointer, lest the compiler sees that it never throws, and drops what is to be cleaned. */
static long (*volatile wait_in)(int, int, long) = enter;

static void ask(int signo)
{
    (void)signo;
    depth = backtrace(called, 64);
}

static int is_within(void *at, void *from, void *to)
{
    return at >= from && at < to;
}

static void clean(int *fd)
{
    (void)fd;
    cleaned = 1;
}

static NOINLINE void *wait_for_ever(void *arg)
{
    __attribute__((cleanup(clean))) int fd = ring;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
    wait_in(by_name, fd, 1);
    return arg;
}

int main(int argc, char **argv)
{
    extern char __executable_start, etext;
    int own = 0;
    pthread_t thread;
    struct sigaction action = { .sa_handler = ask };

    by_name = argc > 1 && strcmp(argv[1], "name") == 0;
    /* libgcc is loaded here, not in the handler. */
    backtrace(called, 1);
    ring = setup(by_name);
    if (ring < 0)
        return 77;
    sigaction(SIGALRM, &action, NULL);
    ualarm(50000, 0);
    wait_in(by_name, ring, 1);
    for (int i = 0; i < depth; i++)
        own += is_within(called[i], &__executable_start, &etext);
    /* ask, (inline_enter,) enter, main; _start where it is found. */
    if (own < (by_name ? 3 : 4)) {
        backtrace_symbols_fd(called, depth, 2);
        return 1;
    }
    pthread_create(&thread, NULL, wait_for_ever, NULL);
    usleep(50000);
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    return cleaned ? 0 : 2;
}
