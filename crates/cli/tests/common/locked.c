/* Threads that are there before mlockall(MCL_FUTURE) make rings after it: locked KIB THREADS, where
 * KIB is the limit of locked memory. Ends with 0 if each ring works, or its setup answers that
 * there is no memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/capability.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_barrier_t barrier;
static int failures;

static void handler(int signal)
{
    (void)signal;
}

static int fails(long fd, const struct io_uring_params *p)
{
    static struct {
        long seconds, nanoseconds;
    } soon = {0, 1000000};
    char *ring = mmap(0, p->sq_off.array + 8 * 4, 3, MAP_SHARED, fd, IORING_OFF_SQ_RING);
    struct io_uring_sqe *sqe = mmap(0, 8 * sizeof *sqe, 3, MAP_SHARED, fd, IORING_OFF_SQES);
    struct io_uring_cqe *cqe;
    if (ring == MAP_FAILED || sqe == MAP_FAILED)
        return errno != EAGAIN;
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = IORING_OP_TIMEOUT;
    sqe->addr = (unsigned long)&soon;
    sqe->len = 1;
    *(unsigned *)(ring + p->sq_off.tail) = 1;
    if (syscall(SYS_io_uring_enter, fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) != 1)
        return errno != EAGAIN;
    cqe = (struct io_uring_cqe *)(ring + p->cq_off.cqes);
    return cqe->res != -ETIME;
}

static void *work(void *unused)
{
    struct io_uring_params p = {0};
    struct epoll_event event = {EPOLLIN, {0}};
    int both[2], set;
    long fd;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    fd = syscall(SYS_io_uring_setup, 8, &p);
    if (fd < 0 ? errno != ENOMEM && errno != EAGAIN : fails(fd, &p))
        __sync_fetch_and_add(&failures, 1);
    set = epoll_create1(0);
    if (set < 0 || pipe(both) || epoll_ctl(set, EPOLL_CTL_ADD, both[0], &event))
        __sync_fetch_and_add(&failures, 1);
    if (fd >= 0) {
        struct pollfd of_ring = {fd, POLLIN, 0};
        poll(&of_ring, 1, 0);
        epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    }
    epoll_wait(set, &event, 1, 0);
    pthread_kill(pthread_self(), SIGUSR1);
    close(dup(both[0]));
    if (fd >= 0)
        close(fd);
    pthread_barrier_wait(&barrier);
    return unused;
}

int main(int argc, char **argv)
{
    struct rlimit limit = {1024L * atoi(argv[1]), 1024L * atoi(argv[1])};
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct rights[2];
    struct sigaction action = {.sa_handler = handler};
    int threads = argc > 2 ? atoi(argv[2]) : 1;
    pthread_t thread;
    if (syscall(SYS_capget, &header, rights))
        return 2;
    rights[0].effective &= ~(1u << CAP_IPC_LOCK);
    if (syscall(SYS_capset, &header, rights) || setrlimit(RLIMIT_MEMLOCK, &limit))
        return 3;
    sigaction(SIGUSR1, &action, 0);
    pthread_barrier_init(&barrier, 0, threads + 1);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&thread, 0, work, 0))
            return 4;
    pthread_barrier_wait(&barrier);
    if (mlockall(MCL_FUTURE))
        return 5;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    _exit(failures ? 6 : 0);
}
