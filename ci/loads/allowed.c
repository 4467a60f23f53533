/* What a call costs: allowed enter|poll|dup. Prints nanoseconds of a call, the median of 200 rounds of
 * 500: an enter of one NOP on a ring, a poll(2) that does not wait, a dup(2) and a close(2). */
#define _GNU_SOURCE
#include <linux/io_uring.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 200, CALLS = 500 };

static int ring;
static unsigned *sq_tail, *sq_array, *cq_head, *cq_tail;
static struct io_uring_sqe *sqes;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void set_up(void) {
    struct io_uring_params p = {0};
    ring = syscall(SYS_io_uring_setup, 1, &p);
    if (ring < 0) die("io_uring_setup");
    int prot = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
    char *sq = mmap(NULL, 4096, prot, flags, ring, IORING_OFF_SQ_RING);
    sqes = mmap(NULL, 4096, prot, flags, ring, IORING_OFF_SQES);
    if (!(p.features & IORING_FEAT_SINGLE_MMAP) || sq == MAP_FAILED || sqes == MAP_FAILED) die("mmap");
    sq_tail = (unsigned *)(sq + p.sq_off.tail), sq_array = (unsigned *)(sq + p.sq_off.array);
    cq_head = (unsigned *)(sq + p.cq_off.head), cq_tail = (unsigned *)(sq + p.cq_off.tail);
    sqes[0] = (struct io_uring_sqe){.opcode = IORING_OP_NOP};
    sq_array[0] = 0;
}

static void enter(void) {
    __atomic_store_n(sq_tail, *sq_tail + 1, __ATOMIC_RELEASE);
    if (syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) != 1) die("enter");
    unsigned tail = __atomic_load_n(cq_tail, __ATOMIC_ACQUIRE);
    if (tail == *cq_head) die("no CQE");
    __atomic_store_n(cq_head, tail, __ATOMIC_RELEASE);
}

static void polls(void) {
    struct pollfd one = {.fd = 0, .events = POLLPRI};
    if (poll(&one, 1, 0) < 0) die("poll");
}

static void dups(void) {
    int fd = dup(0);
    if (fd < 0 || close(fd)) die("dup, close");
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc != 2) return fprintf(stderr, "usage: allowed enter|poll|dup\n"), 2;
    void (*call)(void) = !strcmp(argv[1], "enter") ? enter : !strcmp(argv[1], "poll") ? polls : dups;
    set_up();
    double took[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        double begin = now();
        for (int i = 0; i < CALLS; i++) call();
        took[r] = (now() - begin) / CALLS;
    }
    qsort(took, ROUNDS, sizeof *took, by_size);
    printf("%f\n", took[ROUNDS / 2]);
    return 0;
}
