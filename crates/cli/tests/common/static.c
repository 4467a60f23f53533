#include <errno.h>
#include <signal.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef INLINE
#define syscall own
static long own(long nr, long a, long b, long c, long d, long e, long f)
{
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long ret;
    __asm__ volatile("syscall"
                     : "=a"(ret)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return ret;
}
#endif

static struct io_uring_params p;
static struct io_uring_sqe *sqes;
static char *ring;
static int fd;

/* Waits for a request that a worker issues. */
static struct io_uring_cqe request(int opcode, int of, void *at, unsigned len, unsigned long off)
{
    struct io_uring_cqe none = {0};
    unsigned *tail = (unsigned *)(ring + p.sq_off.tail);
    unsigned *head = (unsigned *)(ring + p.cq_off.head);
    struct io_uring_cqe *cqes = (void *)(ring + p.cq_off.cqes);
    memset(sqes, 0, sizeof *sqes);
    sqes->opcode = opcode;
    sqes->flags = IOSQE_ASYNC;
    sqes->fd = of;
    sqes->addr = (unsigned long)at;
    sqes->len = len;
    sqes->off = off;
    sqes->user_data = 77;
    ((unsigned *)(ring + p.sq_off.array))[*tail & (p.sq_entries - 1)] = 0;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    if (syscall(426, fd, 1, 1, 1, 0, 0) != 1)
        return none;
    struct io_uring_cqe cqe = cqes[*head & (p.cq_entries - 1)];
    __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
    return cqe;
}

static volatile sig_atomic_t seen;

static void on_signal(int signo)
{
    seen = signo;
}

int main(int argc, char **argv)
{
    static char buffer[65536];
#ifdef QUICK
    return 0;
#endif
    signal(SIGUSR1, on_signal);
    if (raise(SIGUSR1) || seen != SIGUSR1)
        return 14;
    fd = syscall(425, 4, &p, 0, 0, 0, 0);
    if (fd < 0)
        return 10;
    ring = mmap(0, 16384, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQ_RING);
    sqes = mmap(0, p.sq_entries * sizeof *sqes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                IORING_OFF_SQES);
    if (ring == MAP_FAILED || sqes == MAP_FAILED)
        return 11;
    printf("%d arguments, a NOP with %llu\n", argc, request(IORING_OP_NOP, -1, 0, 0, 0).user_data);
    fflush(stdout);
    for (unsigned long off = 0;;) {
        int n = request(IORING_OP_READ, 0, buffer, sizeof buffer, off).res;
        if (n <= 0)
            return n ? 12 : 0;
        off += n;
        for (int done = 0; done < n;) {
            int m = request(IORING_OP_WRITE, 1, buffer + done, n - done, -1).res;
            if (m <= 0)
                return 13;
            done += m;
        }
    }
}
