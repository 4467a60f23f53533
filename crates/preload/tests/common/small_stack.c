/* Ring calls on a stack of their own: how much of it they use, and where handlers run meanwhile.
 * argv[1]: how the calls are made. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>

#include "ring.h"

enum { LARGE = 65536, MOST = 512, MOST_OF_SELECT = 4096, PAINT = 0x5a };

static int by_name, ring;
static sigjmp_buf jump;
static char stack[LARGE] __attribute__((aligned(64)));
static char *handled;

/* Calls `what` with its stack's upper end at `top`. */
static NOINLINE void on_stack(char *top, void (*what)(void))
{
    __asm__ volatile("movq %%rsp, %%rbx\n\t"
                     "movq %0, %%rsp\n\t"
                     "call *%1\n\t"
                     "movq %%rbx, %%rsp"
                     :
                     : "r"(top), "r"(what)
                     : "rbx", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
}

static void nothing(void) {}

static void do_setup(void)
{
    ring = setup(by_name);
}

static void do_enter(void)
{
    enter(by_name, ring, 0);
}

static void do_close(void)
{
    /* Not by libc's close, which is no call of a few bytes. */
    long ret;
    __asm__ volatile("movl $3, %%eax\n\tsyscall" : "=&a"(ret) : "D"((long)ring) : "rcx", "r11", "memory");
}

static void do_wait(void)
{
    enter(by_name, ring, 1);
}

/* By libc's name, as all programs call it. */
static void do_select(void)
{
    struct timeval now = { 0 };
    fd_set set;
    FD_ZERO(&set);
    FD_SET(0, &set);
    select(1, &set, NULL, NULL, &now);
}

/* How many bytes of the stack `what` writes to, its own frame included. */
static long used(void (*what)(void))
{
    char *at = stack;
    memset(stack, PAINT, sizeof stack);
    on_stack(stack + sizeof stack, what);
    while (at < stack + sizeof stack && *at == PAINT)
        at++;
    return stack + sizeof stack - at;
}

static int check(const char *name, void (*what)(void))
{
    long most = used(what);
    if (most >= MOST)
        printf("%s: %ld bytes of stack\n", name, most);
    return most >= MOST;
}

static int calls(void)
{
    int wrong = 0;
    check("nothing", nothing);
    wrong += check("setup", do_setup);
    if (ring < 0)
        exit(77);
    wrong += check("enter", do_enter);
    wrong += check("enter again", do_enter);
    long most = used(do_select);
    if (most >= MOST_OF_SELECT)
        printf("select: %ld bytes of stack\n", most);
    wrong += most >= MOST_OF_SELECT;
    wrong += check("close", do_close);
    return wrong;
}

/* For the trap's frame, which is a signal's. */
static void alternate(void)
{
    stack_t alternate = { .ss_sp = malloc(LARGE), .ss_size = LARGE };
    sigaltstack(&alternate, NULL);
}

static void *thread(void *wrong)
{
    alternate();
    *(int *)wrong += calls();
    return NULL;
}

static int mappings(void)
{
    int c, lines = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && (c = getc(maps)) != EOF)
        lines += c == '\n';
    if (maps)
        fclose(maps);
    return lines;
}

static void *enters(void *arg)
{
    alternate();
    on_stack(stack + sizeof stack, do_enter);
    stack_t none = { .ss_flags = SS_DISABLE }, old;
    sigaltstack(&none, &old);
    free(old.ss_sp);
    return arg;
}

/* Threads that have made a call leave nothing behind. */
static int threads_leave_nothing(void)
{
    int before = 0;
    for (int i = 0; i < 60; i++) {
        pthread_t other;
        pthread_create(&other, NULL, enters, NULL);
        pthread_join(other, NULL);
        if (i == 9)
            before = mappings();
    }
    if (mappings() > before + 10)
        printf("%d mappings became %d\n", before, mappings());
    return mappings() > before + 10;
}

static void handle(int signo)
{
    char here;
    (void)signo;
    handled = &here;
}

static void leave(int signo)
{
    handle(signo);
    siglongjmp(jump, 1);
}

/* A handler that ends a wait runs on the stack of whoever waits. */
static int ends_wait(void (*handler)(int))
{
    struct sigaction action = { .sa_handler = handler };
    sigaction(SIGALRM, &action, NULL);
    handled = NULL;
    ualarm(30000, 0);
    if (sigsetjmp(jump, 1) == 0)
        on_stack(stack + sizeof stack, do_wait);
    if (handled < stack || handled >= stack + sizeof stack) {
        printf("the handler ran at %p, not in %p to %p\n", (void *)handled, (void *)stack,
               (void *)(stack + sizeof stack));
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    int wrong = 0;
    pthread_t other;

    by_name = argc > 1 && strcmp(argv[1], "name") == 0;
    alternate();
    /* Binds the name. */
    syscall(39);
    wrong += calls();
    pthread_create(&other, NULL, thread, &wrong);
    pthread_join(other, NULL);
    ring = setup(by_name);
    for (int i = 0; i < 3; i++)
        wrong += ends_wait(handle) + ends_wait(leave);
    wrong += check("enter after jumps", do_enter);
    wrong += threads_leave_nothing();
    return wrong != 0;
}
