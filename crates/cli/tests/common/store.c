/* A server with one data file, in the shape of static databases on rings: it unpacks itself into a
 * memfd and starts that, locks its memory and its file, submits more than 1,000 SQEs in one enter,
 * and waits by enters of 10 ms. store FILE; prints "ready", and waits until it is killed. */
#include "check.h"
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/time_types.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>

#ifndef IORING_ENTER_EXT_ARG
#define IORING_ENTER_EXT_ARG (1U << 3)
#endif
enum { BLOCK = 4096, BLOCKS = 1500, ENTRIES = 2048, RESIDENT = 64 << 20, WAKE = 1 << 20 };

extern char **environ;
static char resident[RESIDENT];
static struct io_uring_params p;
static struct io_uring_sqe *sqes;
static char *ring;
static int fd, wake;

/* The number is in a register, as in Zig's and Go's calls. */
static long __attribute__((noinline)) call(long nr, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "+a"(nr)
                     : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return nr;
}

/* Starts this program again from a memfd. */
static void unpack(char **argv)
{
    char *again[] = {argv[0], argv[1], "unpacked", NULL};
    int from = open("/proc/self/exe", O_RDONLY), to = memfd_create("server", MFD_CLOEXEC);
    CHECK(from >= 0 && to >= 0);
    for (ssize_t n; (n = sendfile(to, from, NULL, 1 << 20)) != 0;)
        CHECK(n > 0);
    call(SYS_execveat, to, (long)"", (long)again, (long)environ, AT_EMPTY_PATH, 0);
    CHECK(!"execveat");
}

static void push(int opcode, int of, void *at, unsigned len, unsigned long off, unsigned long name)
{
    unsigned *tail = (unsigned *)(ring + p.sq_off.tail), slot = *tail & (p.sq_entries - 1);
    struct io_uring_sqe sqe = {.opcode = opcode, .fd = of, .addr = (unsigned long)at, .len = len};
    sqe.off = off;
    sqe.user_data = name;
    sqes[slot] = sqe;
    ((unsigned *)(ring + p.sq_off.array))[slot] = slot;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
}

/* Submits, and waits for so many completions, at most for 10 ms. */
static long enter(unsigned submit, unsigned want)
{
    struct __kernel_timespec soon = {0, 10 * 1000 * 1000};
    struct { unsigned long sigmask; unsigned size, pad; unsigned long ts; } arg = {0};
    arg.ts = (unsigned long)&soon;
    unsigned flags = IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG;
    return call(426, fd, submit, want, flags, (long)&arg, sizeof arg);
}

/* Takes the completions that are there; each must have this result. Returns their number. */
static unsigned reap(int result, int *woken)
{
    unsigned *head = (unsigned *)(ring + p.cq_off.head), n = 0;
    unsigned tail = __atomic_load_n((unsigned *)(ring + p.cq_off.tail), __ATOMIC_ACQUIRE);
    struct io_uring_cqe *cqes = (void *)(ring + p.cq_off.cqes);
    for (; *head != tail; __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE)) {
        struct io_uring_cqe *cqe = &cqes[*head & (p.cq_entries - 1)];
        if (cqe->user_data == WAKE) {
            CHECK(cqe->res == 8);
            *woken = 1;
        } else {
            CHECK(cqe->res == result);
            n++;
        }
    }
    return n;
}

/* Moves all blocks by one submission. */
static void all(int opcode, int file, char *blocks)
{
    int woken = 0;
    for (unsigned i = 0; i < BLOCKS; i++)
        push(opcode, file, blocks + i * BLOCK, BLOCK, (unsigned long)i * BLOCK, i);
    CHECK(enter(BLOCKS, 0) == BLOCKS);
    for (unsigned n = 0; (n += reap(BLOCK, &woken)) < BLOCKS;) {
        long answer = enter(0, 1);
        CHECK(answer == 0 || answer == -ETIME);
    }
}

static void *signals(void *none)
{
    usleep(60 * 1000);
    CHECK(write(wake, &(unsigned long){1}, 8) == 8);
    return none;
}

/* Waits for a thread's signal by enters that time out. */
static void wait_for_wake(void)
{
    static unsigned long value;
    int woken = 0, timed_out = 0;
    pthread_t thread;
    push(IORING_OP_READ, wake, &value, sizeof value, 0, WAKE);
    CHECK(enter(1, 0) == 1);
    CHECK(!pthread_create(&thread, NULL, signals, NULL));
    while (!woken) {
        long answer = enter(0, 1);
        CHECK(answer == 0 || answer == -ETIME);
        timed_out += answer == -ETIME;
        reap(0, &woken);
    }
    CHECK(!pthread_join(thread, NULL) && timed_out > 0 && value == 1);
}

int main(int argc, char **argv)
{
    if (argc == 2)
        unpack(argv);
    memset(resident, 1, sizeof resident);
    struct rlimit all_memory = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_MEMLOCK, &all_memory);
    int locked = !mlockall(MCL_CURRENT | MCL_FUTURE);
    int file = open(argv[1], O_RDWR | O_CREAT | O_DIRECT | O_DSYNC | O_CLOEXEC, 0600);
    CHECK(file >= 0 && !flock(file, LOCK_EX | LOCK_NB));
    fd = call(425, ENTRIES, (long)&p, 0, 0, 0, 0);
    CHECK(fd >= 0);
    size_t words = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe) + 4 * p.sq_entries;
    int prot = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_POPULATE;
    ring = (void *)call(SYS_mmap, 0, words, prot, flags, fd, 0);
    sqes = (void *)call(SYS_mmap, 0, p.sq_entries * sizeof *sqes, prot, flags, fd, 0x10000000);
    CHECK((long)ring > 0 && (long)sqes > 0);
    char *out = aligned_alloc(BLOCK, BLOCK * BLOCKS), *in = aligned_alloc(BLOCK, BLOCK * BLOCKS);
    for (unsigned i = 0; i < BLOCK * BLOCKS; i++)
        out[i] = i * 2654435761u >> 24;
    all(IORING_OP_WRITE, file, out);
    all(IORING_OP_READ, file, in);
    CHECK(!memcmp(out, in, BLOCK * BLOCKS));
    wake = eventfd(0, EFD_CLOEXEC);
    wait_for_wake();
    printf("ready%s\n", locked ? ", memory locked" : "");
    fflush(stdout);
    for (;;)
        enter(0, 1);
}
