/* A ring by libc's own syscall(), reached past the name: argv[1] is libc's file.
 * argv[2] "half": it is made by the name, and entered past it; "cost": prints nanoseconds per call
 * of another number. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double cost(long (*call)(long, ...))
{
    enum { TIMES = 300000 };
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int i = 0; i < TIMES; i++)
        call(110);
    clock_gettime(CLOCK_MONOTONIC, &to);
    return ((to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec)) / TIMES;
}

int main(int argc, char **argv)
{
    unsigned params[30] = { 0 };
    void *libc = dlopen(argv[1], RTLD_NOW);
    long (*call)(long, ...) = (long (*)(long, ...))dlsym(libc, "syscall");
    int half = argc > 2 && strcmp(argv[2], "half") == 0;

    if (argc > 2 && strcmp(argv[2], "cost") == 0) {
        double best = 1e9;
        for (int i = 0; i < 7; i++) {
            double ns = cost(call);
            best = ns < best ? ns : best;
        }
        return printf("%.1f\n", best), 0;
    }
    long ring = half ? syscall(425, 4, params) : call(425, 4, params);
    if (ring < 0)
        return 77;
    return call(426, ring, 0, 0, 1, 0L, 0L) != 0;
}
